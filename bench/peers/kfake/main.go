// A kfake broker that keeps its records on disk, for the benchmark.
//
//	kfake PORT DIRECTORY
//
// It serves until SIGTERM. As the other brokers of the benchmark it does not sync each write, and creates
// topics only when it is asked to.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func run(port, directory string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(number), kfake.DataDir(directory))
	if err != nil {
		return err
	}
	defer cluster.Close()
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGINT, syscall.SIGTERM)
	<-stopped
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kfake PORT DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}
