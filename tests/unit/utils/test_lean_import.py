"""Libraries are loaded without what the broker has no use for, and work; whoever needs that gets it whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import sys
import broker.__main__
from broker.utils.lean_import import import_lean
structlog, crc32c, _ = [import_lean(name) for name in ("structlog", "crc32c", "kazoo.client")]
import broker.server.broker_server, broker.server.daemon, broker.zookeeper.client
import_lean("http.server")
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
codec.decode(ApiKey.METADATA, 1, "request", codec.encode(ApiKey.METADATA, 1, "request", {"topics": ()}))
"""


def printed(program):
    done = subprocess.run(
        [sys.executable, "-c", START + program], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


def test_nothing_slow_is_loaded_by_a_start_and_the_first_requests():
    slow = {
        "asyncio",
        "concurrent.futures",
        "csv",
        "hashlib",
        "hypothesis",
        "importlib.metadata",
        "importlib.resources",
        "prometheus_client",
        "rich",
        "ssl",
        "subprocess",
        "tempfile",
        "typing_extensions",
        "zipfile",
    }
    assert printed(f"print(sorted({slow} & set(sys.modules)))") == "[]"


@pytest.mark.parametrize("module", ["asyncio", "hashlib", "importlib.metadata", "ssl", "typing_extensions"])
def test_whoever_needs_what_was_left_out_gets_it_whole(module):
    assert printed(f"import {module}; print({module}.__file__ is not None)") == "True"


def test_what_kazoo_hashes_a_log_in_with_is_there_when_it_logs_in():
    assert printed("from kazoo import security; print(security.hashlib.md5(b'').digest_size)") == "16"


def test_an_https_client_works_after_the_first_request_over_http():
    program = """
import urllib.request
try:
    urllib.request.urlopen("https://127.0.0.1:1/")
except OSError as error:
    print(error)
"""
    assert "Connection refused" in printed(program)


def test_a_scrape_finds_its_library_complete():
    program = """
from broker.metrics.exposition import Exposition
from broker.metrics.registry import Metrics
print(b"process_resident_memory_bytes" in Exposition(Metrics()).text())
"""
    assert printed(program) == "True"


def test_what_kazoo_would_catch_of_tls_is_no_error_that_it_gets():
    program = """
from kazoo.handlers import utils
from kazoo.protocol import connection
caught = {utils.ssl.SSLError, connection.ssl.SSLError}
print(any(issubclass(error, kind) for error in (OSError, ConnectionError, TimeoutError) for kind in caught))
"""
    assert printed(program) == "False"


def test_a_library_that_is_loaded_already_is_taken_as_it_is():
    assert (
        printed("before = dict(sys.modules); import_lean('kio.serial'); print(sys.modules == before)")
        == "True"
    )
