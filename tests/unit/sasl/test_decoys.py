"""What an outsider sees of SCRAM users who do not exist: the same on all brokers, and like users who do."""

from __future__ import annotations

from itertools import permutations

from broker.sasl.credential import ScramCredential
from broker.sasl.decoys import KAFKAS_FORM, Decoys, Form
from broker.sasl.scram import ALGORITHMS, new_credential

SECRET = b"of the cluster"
FORMS = [Form(4096, 26, is_text=True), Form(8192, 24, is_text=False), Form(16384, 300, is_text=False)]
NAMES = [f"nobody{number}" for number in range(200)]


def seen(decoys: Decoys, name: str, mechanism: str = "SCRAM-SHA-256") -> tuple[bytes, int]:
    decoy = decoys.credential(mechanism, name, by_token=False)
    return decoy.salt, decoy.iterations


def test_all_brokers_show_the_same_of_an_unknown_user() -> None:
    brokers = [Decoys(SECRET, lambda _, forms=forms: forms) for forms in permutations(FORMS)]
    for name in NAMES:
        assert len({seen(broker, name) for broker in brokers}) == 1


def test_a_user_is_known_by_neither_the_mechanism_nor_the_secret() -> None:
    decoys, others = Decoys(SECRET, lambda _: []), Decoys(b"of another", lambda _: [])
    shown = {seen(each, "nobody", mechanism) for each in (decoys, others) for mechanism in ALGORITHMS}
    assert len(shown) == 4


def test_unknown_users_have_every_form_that_users_have() -> None:
    decoys = Decoys(SECRET, lambda _: FORMS)
    made = [decoys.credential("SCRAM-SHA-512", name, by_token=False) for name in NAMES]
    assert {Form.of(each) for each in made} == set(FORMS)
    assert len({each.salt for each in made}) == len(NAMES)


def test_another_form_changes_few_unknown_users() -> None:
    before, after = Decoys(SECRET, lambda _: FORMS[:2]), Decoys(SECRET, lambda _: FORMS)
    changed = [name for name in NAMES if seen(before, name) != seen(after, name)]
    assert 0 < len(changed) < len(NAMES) / 2
    assert all(seen(after, name)[1] == 16384 for name in changed)


def test_the_form_of_a_credential_is_what_a_client_sees() -> None:
    assert Form.of(new_credential("SCRAM-SHA-256", "x", 5000, bytes(24))) == Form(5000, 24, is_text=False)
    kafkas = ScramCredential(b"1q2w3e4r5t6z7u8i9o0p1q2w3e", b"", b"", 4096)
    assert Form.of(kafkas) == KAFKAS_FORM
