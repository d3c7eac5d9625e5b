"""The registry and its Prometheus page."""

import threading

import pytest

from broker.metrics.exposition import Exposition
from broker.metrics.registry import Metrics


@pytest.fixture
def metrics():
    return Metrics()


def lines(metrics):
    page = Exposition(metrics).text().decode().splitlines()
    return [line for line in page if not line.startswith("#") and not line.startswith("process_")]


def test_a_gauge_is_asked_at_each_scrape(metrics):
    values = iter([1, 2])
    metrics.gauge("kafka_server_replicamanager_leadercount", "Leaders.", lambda: next(values))
    page = Exposition(metrics)
    assert b"kafka_server_replicamanager_leadercount 1.0" in page.text()
    assert b"kafka_server_replicamanager_leadercount 2.0" in page.text()


def test_a_gauge_with_labels_gives_a_line_for_each(metrics):
    metrics.gauge("size", "Bytes.", lambda: {("t", "0"): 5, ('q"', "1"): 6}, labels=("topic", "partition"))
    assert lines(metrics) == ['size{partition="0",topic="t"} 5.0', 'size{partition="1",topic="q\\""} 6.0']


def test_a_name_that_utf8_cannot_write_costs_only_its_own_letters(metrics):
    """As of a user whose token has half of a surrogate pair in its JSON."""
    metrics.gauge("rate", "Bytes.", lambda: {("\ud800", "ä"): 5, ("\ud801", "b"): 6}, labels=("user", "id"))
    metrics.gauge("size", "Bytes.", lambda: 1)
    written = ['rate{id="ä",user="\\\\ud800"} 5.0', 'rate{id="b",user="\\\\ud801"} 6.0', "size 1.0"]
    assert lines(metrics) == written


def test_a_gauge_that_fails_costs_the_others_nothing(metrics):
    metrics.gauge("bad", "Fails.", lambda: 1 / 0)
    metrics.gauge("good", "Works.", lambda: 1)
    assert lines(metrics) == ["good 1.0"]


def test_a_function_named_total_is_told_as_a_counter(metrics):
    metrics.gauge("requests_total", "Requests.", lambda: {("Fetch",): 3}, labels=("request",))
    page = Exposition(metrics).text().decode()
    assert "# TYPE requests_total counter" in page
    assert 'requests_total{request="Fetch"} 3.0' in page


def test_cells_of_a_hot_counter_are_added_up(metrics):
    first, second = metrics.hot_counter("hot", "Hot."), metrics.hot_counter("hot")
    first.value += 3
    second.value += 4
    assert lines(metrics) == ["hot_total 7.0"]


def test_no_count_of_many_threads_is_lost(metrics):
    counter = metrics.counter("count", "Counts.")

    def count():
        for _ in range(2000):
            counter.inc()

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value == 16_000
    assert metrics.counter("count", "Counts.") is counter


def test_labelled_counters_can_be_kept_and_removed(metrics):
    errors = metrics.counter("errors", "Errors.", ("code",))
    errors.labels("NONE").inc(2)
    assert errors.labels("NONE") is errors.labels("NONE")
    errors.labels("GONE").inc()
    errors.remove("GONE")
    assert lines(metrics) == ['errors_total{code="NONE"} 2.0']
    with pytest.raises(ValueError, match="1 label values are expected"):
        errors.labels("a", "b")


def test_a_histogram_counts_by_upper_bounds(metrics):
    times = metrics.histogram("time_ms", "Time.", buckets=(1, 10))
    for value in (0.5, 1, 5, 50):
        times.observe(value)
    assert lines(metrics) == [
        'time_ms_bucket{le="1"} 2.0',
        'time_ms_bucket{le="10"} 3.0',
        'time_ms_bucket{le="+Inf"} 4.0',
        "time_ms_count 4.0",
        "time_ms_sum 56.5",
    ]
    assert times.count == 4


def test_labelled_histograms_are_told_apart(metrics):
    times = metrics.histogram("time_ms", "Time.", ("request",), buckets=(1,))
    times.labels("Fetch").observe(2)
    assert 'time_ms_bucket{le="+Inf",request="Fetch"} 1.0' in lines(metrics)


def test_one_name_is_one_kind(metrics):
    metrics.counter("name", "Counts.")
    with pytest.raises(TypeError, match="is a Counter already"):
        metrics.histogram("name", "Time.")
    with pytest.raises(TypeError, match="is a Counter already"):
        metrics.hot_counter("name")
    with pytest.raises(ValueError, match="no metric name"):
        metrics.counter("Bad-Name", "Counts.")


def test_the_page_tells_of_the_process(metrics):
    page = Exposition(metrics).text().decode()
    for name in (
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_threads",
    ):
        assert f"\n{name} " in page
