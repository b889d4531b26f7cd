"""`config show` prints valid TOML, marks defaults and masks secrets."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from cordata.config import Config, Document, build, open_document
from cordata.config.sections import MailConfig
from cordata.config.show import lines, literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    api_token: str = ""
    prices: dict[str, float] | None = None


def shown(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cordata.toml"
    path.write_text(text)
    document = open_document(path)
    return "\n".join(lines(build(document, {"shop": Shop}, {}), document, ["master-key"]))


def test_lines_are_the_same_configuration_when_read_again(tmp_path: Path) -> None:
    text = "\n".join(lines(Config(), Document(path=None), []))
    (tmp_path / "again.toml").write_text(text)
    assert build(open_document(tmp_path / "again.toml"), {}, {}) == Config()


def test_lines_mark_defaults_when_the_file_does_not_set_a_key(tmp_path: Path) -> None:
    text = shown(tmp_path, "[http]\nmax_connections = 7\n")
    assert "max_connections = 7\n" in text
    assert "access_log = false  # default\n" in text


def test_lines_mask_when_a_value_is_secret(tmp_path: Path) -> None:
    text = shown(
        tmp_path,
        '[shop]\napi_token = "hush"\n[store]\nurl = "sqlite://me:hush@host/x"\n',
    )
    assert "hush" not in text
    assert 'api_token = "********"' in text
    assert 'url = "sqlite://me:********@host/x"' in text
    assert "master-key = ********" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u@h,h2:5433/db?sslmode=require&connect_timeout=3", None),
        ("postgresql:///db?host=/run/postgresql", None),
        ("postgresql://u@[::1]:5432/db", None),
        ("rediss+sentinel://u@a:1,b:2/main/0?ssl_ca_certs=/etc/ca", None),
        ("https://shop.example/a/b", None),
        ("sqlite:///var/lib/my shop/x.db", None),
        ("see https://shop.example/a, or ask", None),
        ("postgresql://u:hush@h/db", "postgresql://u:********@h/db"),
        ("redis://:hush@h:1/0", "redis://:********@h:1/0"),
        ("postgresql://u:hu/sh@h/db", "postgresql://********"),
        ("postgresql://u@h/db?hush=1", "postgresql://********"),
        ("hush:sh://u@h/db", "********"),
        ("see https://u:hush@h/ there", "see https://u:********@h/ there"),
    ],
)
def test_address_is_shown_without_what_may_be_a_password(url: str, shown: str | None) -> None:
    assert json.loads(literal(url)) == (shown or url)


def test_lines_are_toml_when_a_value_holds_control_characters(tmp_path: Path) -> None:
    sender = '\\"\t\r\n\x00\x1f\x7fä\u2028'
    text = "\n".join(lines(Config(mail=MailConfig(sender=sender)), Document(path=None), []))
    assert tomllib.loads(text)["mail"]["sender"] == sender


def test_lines_show_only_the_difference_when_an_instance_has_overrides(tmp_path: Path) -> None:
    text = shown(tmp_path, "[worker.2]\nservices = ['engine']\n")
    table = tomllib.loads(text)["worker"]
    assert table["2"] == {"services": ["engine"]}
