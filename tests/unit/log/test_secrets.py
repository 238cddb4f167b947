"""What is taken for a secret, and what is not."""

import pytest

from trimtab.log.secrets import names_of_secrets, redacted


@pytest.mark.parametrize("name", ["password", "api_key", "DB_PASSWORD", "auth-token", "APIKEY"])
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert list(names_of_secrets({"options": {name: "x"}})) == [f"options.{name}"]


@pytest.mark.parametrize(
    "values", [{"num_tokens": "12"}, {"keyboard": "x"}, {"token": 3}, {"address": "http://a/b@c"}]
)
def test_other_values_are_not(values: dict) -> None:
    assert list(names_of_secrets(values)) == []


def test_an_address_with_a_password_is_one() -> None:
    assert list(names_of_secrets({"address": "http://me:pass@host/x"})) == ["address"]


def test_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", "abcdef123")
    text = "http://me:pass@host/x refused abcdef123"
    assert redacted(text) == "http://***@host/x refused ***"
