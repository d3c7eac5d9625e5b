"""The log's lines."""

import json
import subprocess
import sys

import pytest

from broker.utils.logging_setup import render_logfmt

PROGRAM = """
import logging, os, sys, threading
from broker.utils.logging_setup import configure_logging
configure_logging()
import structlog
log = structlog.get_logger("broker.test")
log.debug("hidden")
log.info("broker_started", broker_id=1, path="/a b", ok=True, nothing=None)
try:
    raise ValueError("two\\nlines")
except ValueError:
    log.exception("failed")
logging.getLogger("kazoo.client").warning("lost %s", "it")
def die():
    raise RuntimeError("planned")
thread = threading.Thread(target=die, name="worker-1")
thread.start()
thread.join()
"""


def run(**environment):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PATH": "/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr.splitlines()


def test_each_event_is_one_line_of_time_level_event_and_values():
    started, failed, library, died = run()
    assert started[10] == "T"
    assert started.split(" ", 1)[1] == 'info broker_started broker_id=1 path="/a b" ok=true nothing=null'
    assert 'error failed error="ValueError: two\\nlines" traceback="Traceback' in failed
    assert 'warning library_log logger=kazoo.client message="lost it"' in library
    assert 'error thread_died thread=worker-1 error="RuntimeError: planned"' in died


def test_json_has_one_object_per_line():
    started = json.loads(run(LANDLINE_LOG_FORMAT="json")[0])
    assert (started["event"], started["level"], started["broker_id"]) == ("broker_started", "info", 1)


def test_the_level_is_the_environments():
    assert len(run(LANDLINE_LOG_LEVEL="error")) == 2
    assert "debug hidden" in run(LANDLINE_LOG_LEVEL="debug")[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", '""'),
        ("a=b", '"a=b"'),
        ('q"', '"q\\""'),
        (1.5, "1.5"),
        ("é", '"\\u00e9"'),
        ("del\x7f", '"del\\u007f"'),
        ("c1\x9b31m", '"c1\\u009b31m"'),
        ("rtl\u202etxt", '"rtl\\u202etxt"'),
        ("line\u2028x", '"line\\u2028x"'),
        ("\n", '"\\n"'),
        ("\x1b[31m", '"\\u001b[31m"'),
    ],
)
def test_a_value_never_breaks_the_line(value, text):
    assert render_logfmt(None, "", {"event": "e", "level": "info", "key": value}) == f"info e key={text}"


LONG_VALUES = """
from broker.utils.logging_setup import configure_logging
configure_logging()
import structlog
log = structlog.get_logger("broker.test")
log.warning("request_refused", client_id="\\x01" * 32_700, reason="<2>" * 100_000, names=["x" * 30_000] * 100)
try:
    raise ValueError("\\x01" * 100_000)
except ValueError:
    log.exception("failed", **{f"value_{n}": "\\u202e" * 10_000 for n in range(50)})
"""


@pytest.mark.parametrize("form", ["json", "logfmt"])
def test_no_peer_makes_a_line_that_the_journal_splits(form):
    done = subprocess.run(
        [sys.executable, "-c", LONG_VALUES],
        env={"PATH": "/bin", "LANDLINE_LOG_FORMAT": form},
        capture_output=True,
        check=True,
    )
    refused, failed = done.stderr.splitlines()
    assert len(refused) < 48 * 1024
    assert len(failed) < 48 * 1024
    assert refused.count(b"\\u0001") == 256
    assert b"(32444 more)" in refused
    assert all(32 <= byte < 127 for byte in refused + failed)
