"""Transactional produce: the rate, what it costs the broker, and how long a commit takes."""

from __future__ import annotations

from bench import goals
from bench.client.process import ClientProcess
from bench.client.transactions import Commits, TransactionsRun, write_transactions
from bench.machine import Usage
from bench.pages import touch_free_memory
from bench.percentiles import summarise
from bench.results import Better, Metric
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload
from rig.processes import MIB

PARTITIONS = 10
SECONDS = 8.0
WARM_UP_S = 4.0
# What a second may write, on all replicas together: so many pages of the machine are touched before. Not many more:
# the machine gives them back to its host meanwhile, and commits wait for that.
RECORDS_A_SECOND = 750_000
SMALL_RECORDS_A_SECOND = 3_000_000
US_PER_S = 1e6
MS_PER_S = 1e3
EACH_THOUSAND = Commits(records=1000)
EACH_100_MS = Commits(seconds=0.1)
SMALL_EACH_THOUSAND = Commits(records=1000, record_bytes=100)
SMALL_EACH_100_MS = Commits(seconds=0.1, record_bytes=100)


def transaction_metrics(key: str, title: str) -> tuple[Metric, ...]:
    """The figures of a transactional producer."""
    return (
        Metric(f"{key}.rate", title, "records/s", Better.HIGHER, goals.NOT_BELOW),
        Metric(f"{key}.cpu", f"{title}: broker CPU", "µs/record", Better.LOWER, goals.TRANSACTION_CPU),
        Metric(f"{key}.commit_p50", f"{title}: a commit, p50", "ms", Better.LOWER),
        Metric(f"{key}.commit_p99", f"{title}: a commit, p99", "ms", Better.LOWER, goals.NOT_BELOW),
        Metric(f"{key}.transactions", f"{title}: transactions", "1/s", Better.HIGHER, detail=True),
        Metric(f"{key}.system", f"{title}: broker CPU in the kernel", "µs/record", Better.LOWER, detail=True),
        Metric(
            f"{key}.transaction_cpu",
            f"{title}: broker CPU of a transaction",
            "CPU ms",
            Better.LOWER,
            detail=True,
        ),
    )


def transaction_values(key: str, run: TransactionsRun, usage: Usage) -> Values:
    """The values of ``transaction_metrics``."""
    times = summarise(run.commit_ms)
    return {
        f"{key}.rate": run.records / run.seconds,
        f"{key}.cpu": usage.broker.total / run.records * US_PER_S,
        f"{key}.commit_p50": times.p50,
        f"{key}.commit_p99": times.p99,
        f"{key}.transactions": times.count / run.seconds,
        f"{key}.system": usage.broker.system / run.records * US_PER_S,
        f"{key}.transaction_cpu": usage.broker.total / times.count * MS_PER_S,
    }


def _workload(key: str, title: str, commits: Commits, replicas: int) -> Workload:
    def run(visit: Visit) -> Values:
        topic = visit.fresh_topic(PARTITIONS, replicas)

        def producer(seconds: float) -> ClientProcess[TransactionsRun]:
            touch_free_memory(round(visit.seconds(seconds) * _bytes_a_second(commits) / MIB))
            where = (visit.bootstrap, topic, PARTITIONS)
            return ClientProcess(write_transactions, *where, commits, visit.seconds(seconds))

        # On the topic itself: the first producer also has the coordinator's topic created.
        with producer(WARM_UP_S) as first:
            _written(first)
        with producer(SECONDS) as measured:
            done, usage = visit.measure(lambda: _written(measured))
        return transaction_values(key, done, usage)

    return Workload(title, transaction_metrics(key, title), run)


def _bytes_a_second(commits: Commits) -> int:
    small = commits.record_bytes < EACH_THOUSAND.record_bytes
    return commits.record_bytes * (SMALL_RECORDS_A_SECOND if small else RECORDS_A_SECOND)


def _written(producer: ClientProcess[TransactionsRun]) -> TransactionsRun:
    producer.go()
    return producer.result()


def _workloads(suffix: str, note: str, replicas: int) -> tuple[Workload, ...]:
    return tuple(
        _workload(f"transactions_{key}{suffix}", f"transactions of {title}{note}", commits, replicas)
        for key, title, commits in (
            ("1000", "1,000 records", EACH_THOUSAND),
            ("100ms", "100 ms", EACH_100_MS),
            ("1000_small", "1,000 records of 100 B", SMALL_EACH_THOUSAND),
            ("100ms_small", "100 ms, records of 100 B", SMALL_EACH_100_MS),
        )
    )


_HOW = (
    f"One librdkafka producer (confluent-kafka) in its own process, {PARTITIONS} partitions, records of 1 KiB (or "
    "100 B), as fast as they are acknowledged. A commit is timed from the acknowledgement of all records until the "
    "coordinator has stored it."
)
SUITE = Suite("transactions", "Transactions", Stage.ONE, _workloads("", "", 1), _HOW)
REPLICATED_SUITE = Suite(
    "replicated-transactions",
    "Transactions on three brokers",
    Stage.THREE,
    _workloads("_rf3", ", RF 3", 3),
    f"{_HOW} Three replicas of the topic and of __transaction_state, CPU summed over the brokers.",
)
