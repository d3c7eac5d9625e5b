"""Java's .properties format, line by line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.problems import ConfigError
from broker.config.properties import parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a  =  b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b=c", {"a": "b=c"}),
        ("a = : b", {"a": ": b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# a=b\n! c=d\n\ne=f", {"e": "f"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b \\\n# no comment", {"a": "b # no comment"}),
        (r"a\ b\=c=d", {"a b=c": "d"}),
        (r"a=\t\n\u00e9\q", {"a": "\t\né" + "q"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("a=b\\", {"a": "b"}),
    ],
)
def test_text_is_read_as_java_reads_it(text, expected):
    assert dict(parse_properties(text)) == expected


def test_keys_know_the_line_they_start_on():
    properties = parse_properties("# head\na=1\nb=2\\\n  3\nc=4\n")
    assert properties.lines == {"a": 2, "b": 3, "c": 5}


def test_a_key_given_twice_counts_by_its_last_line_and_is_told_of():
    properties = parse_properties("a=1\nb=2\na=3\na=4")
    assert properties["a"] == "4"
    assert properties.lines["a"] == 4
    assert properties.duplicates == {"a": [1, 3, 4]}


def test_a_malformed_escape_is_refused_with_its_line():
    with pytest.raises(ConfigError) as refusal:
        parse_properties("a=1\nb=\\u12")
    assert refusal.value.problems[0][:2] == ("b", 2)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.properties: cannot be read: No such file"):
        read_properties(tmp_path / "absent.properties")


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path):
    file = tmp_path / "latin.properties"
    file.write_bytes(b"a=1\nb=\xe9\n")
    with pytest.raises(ConfigError) as refusal:
        read_properties(file)
    assert refusal.value.problems[0].line == 2


def test_a_file_without_end_is_not_read_into_memory():
    with pytest.raises(ConfigError, match="larger than"):
        read_properties("/dev/zero")


def _escape(text):
    return "".join(
        f"\\u{ord(char):04x}" if not char.isalnum() or not char.isascii() else char for char in text
    )


@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=0xD7FF), min_size=1), st.text(st.characters(max_codepoint=0xD7FF))
    )
)
def test_what_is_escaped_comes_back(values):
    text = "\n".join(f"{_escape(key)}={_escape(value)}" for key, value in values.items())
    assert dict(parse_properties(text)) == values
