"""The reader names every problem of a file at once."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path

import pytest

from cordata.config import Config, build, find_file, open_document
from cordata.config.bounds import RANGES
from cordata.config.reader import Document
from cordata.errors import ConfigError


def document(tmp_path: Path, text: str) -> Document:
    path = tmp_path / "cordata.toml"
    path.write_text(text)
    return open_document(path)


def problems(tmp_path: Path, text: str, settings: dict[str, type] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        build(document(tmp_path, text), settings or {}, {})
    prefix = f"{tmp_path}/cordata.toml: "
    assert all(p.startswith(prefix) for p in caught.value.problems)
    return [p.removeprefix(prefix) for p in caught.value.problems]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    latitude: float = -1.5
    owner: str


def test_build_gives_every_default_when_there_is_no_file() -> None:
    assert build(Document(path=None), {}, {}) == Config()


def test_build_reads_given_values_when_they_fit(tmp_path: Path) -> None:
    config = build(
        document(
            tmp_path,
            """
            [app]
            import = "shop.app:app"
            path = ["code", "/opt/code"]
            [http]
            drain_s = 1
            access_log = true
            trusted_proxies = ["10.0.0.0/8", "unix"]
            [mail]
            security = "tls"
            """,
        ),
        {},
        {},
    )
    assert config.app.import_ == "shop.app:app"
    assert config.app.path == (tmp_path / "code", Path("/opt/code"))
    assert config.http.drain_s == 1.0
    assert isinstance(config.http.drain_s, float)
    assert config.http.access_log is True
    assert config.http.trusted_proxies == ("10.0.0.0/8", "unix")
    assert config.mail.security == "tls"
    assert config.store == Config().store


def test_build_names_all_problems_when_several_are_wrong(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
        [http]
        max_conections = 3
        drain_s = -1
        access_log = "yes"
        [worker]
        services = ["htp"]
        [wroker]
        [store]
        url = 3
        readers = 99
        [mail]
        port = true
        """,
    )
    assert found == [
        "[worker] services: item 1 must be one of 'http', 'engine', 'pool', not 'htp'",
        "[http] max_conections: unknown key; the nearest known is max_connections",
        "[http] drain_s: must be from 0 to 3600, not -1.0",
        "[http] access_log: must be true or false, not 'yes'",
        "[store] url: must be a string, not 3",
        "[store] readers: must be from 1 to 64, not 99",
        "[mail] port: must be a whole number, not true",
        "[wroker]: unknown section; the nearest known is [worker]",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[engine]\nretry_min_s = 9\nretry_max_s = 3", "[engine] retry_min_s: must not be more"),
        ("[engine]\npoll_s = 0", "[engine] poll_s: must be from 0.01 to 86400, not 0.0"),
        ("[engine]\npoll_s = nan", "[engine] poll_s: must be a finite number"),
        ("[engine]\npoll_s = inf", "[engine] poll_s: must be a finite number"),
        ("[engine]\npoll_s = 1e-9", "[engine] poll_s: must be from 0.01 to 86400, not 1e-09"),
        ("[engine]\nconcurrency = 1000000000", "[engine] concurrency: must be from 1 to 1000"),
        ("[engine]\nretention_s = 1e300", "[engine] retention_s: must be from 0 to 315360000"),
        ('[mail]\nhost = "a\\u0000b"', "[mail] host: has a line break or another control"),
        ('[mail]\nhost = "a b"', "[mail] host: must be the name or address"),
        ('[mail]\nhost = "a:587"', "[mail] host: must be the name or address"),
        ('[mail]\nsender = "a@b\\r\\nBcc: c@d"', "[mail] sender: has a line break"),
        ('[mail]\nsender = "a"', "[mail] sender: must be an address"),
        ('[alert]\nto = ["a@b\\nBcc: c@d"]', "[alert] to: has a line break"),
        ('[paths]\nstate = "/a\\u0000"', "[paths] state: has a line break or another control"),
        ('[broker]\nprefix = "a\\nb"', "[broker] prefix: has a line break"),
        ("[worker]\nservices = []", "[worker] services: must name at least one service"),
        ('[worker]\nservices = ["http", "http"]', "[worker] services: names 'http' twice"),
        ("[worker]\nservices = 'http'", "[worker] services: must be a list, not 'http'"),
        ("worker = 3", "[worker]: must be a section, not 3"),
        ("[worker.x]\nstop_timeout_s = 3", "[worker] x: unknown key; the nearest known is"),
        ("[worker.2]\nstop_timeout = 3", "[worker.2] stop_timeout: unknown key; the nearest"),
        ("[worker.2]\nstop_timeout_s = 0", "[worker.2] stop_timeout_s: must be from 0.1 to 86400"),
        ("[paths]\nstate = ''", "[paths] state: must be a path, not ''"),
        ("[log]\nlevel = 'loud'", "[log] level: must be one of 'debug', 'info', 'warning',"),
        ("[http.limits]\nx = 1", "[http] limits: unknown key; the nearest known is"),
        (
            '[http]\ntrusted_proxies = ["10.0.0.0/40"]',
            "[http] trusted_proxies: names '10.0.0.0/40'",
        ),
    ],
)
def test_build_names_section_key_and_reason_when_one_value_is_bad(
    tmp_path: Path, text: str, problem: str
) -> None:
    (found,) = problems(tmp_path, text)
    assert found.startswith(problem)


def test_worker_of_overrides_single_keys_when_an_instance_has_a_section(tmp_path: Path) -> None:
    config = build(
        document(tmp_path, "[worker]\nstop_timeout_s = 9\n[worker.2]\nservices = ['engine']\n"),
        {},
        {},
    )
    assert config.worker_of("2").services == ("engine",)
    assert config.worker_of("2").stop_timeout_s == 9.0
    assert config.worker_of("1") is config.worker


def test_build_reads_application_sections_when_declared(tmp_path: Path) -> None:
    config = build(
        document(tmp_path, '[shop]\nowner = "Ann"\nlatitude = -46.5\n'), {"shop": Shop}, {}
    )
    assert config.settings["shop"] == Shop(owner="Ann", latitude=-46.5)


def test_build_names_required_keys_when_an_application_section_lacks_them(tmp_path: Path) -> None:
    assert problems(tmp_path, "[shop]\nlatitud = 1\n", {"shop": Shop}) == [
        "[shop] latitud: unknown key; the nearest known is latitude",
        "[shop] owner: is required",
    ]


def test_build_reports_what_a_section_refuses_when_it_checks_itself(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Odd:
        n: int = 1

        def __post_init__(self) -> None:
            if self.n % 2 == 0:
                raise ValueError("n must be odd")

    assert problems(tmp_path, "[odd]\nn = 2\n", {"odd": Odd}) == ["[odd]: n must be odd"]


def test_build_names_the_section_when_its_own_check_breaks(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Shop:
        n: int = 1

        def __post_init__(self) -> None:
            1 // self.n

    (problem,) = problems(tmp_path, "[shop]\nn = 0\n", {"shop": Shop})
    assert problem.startswith("[shop]: its check failed with ZeroDivisionError: integer")


def test_build_leaves_unknown_sections_alone_when_the_application_is_not_imported(
    tmp_path: Path,
) -> None:
    assert build(document(tmp_path, "[shop]\nx = 1\n"), None, {}) == Config()


def test_build_takes_directories_from_the_environment_when_the_manager_names_them(
    tmp_path: Path,
) -> None:
    environment = {
        "STATE_DIRECTORY": "/var/lib/one:/var/lib/two",
        "CREDENTIALS_DIRECTORY": "/run/credentials/x",
        "CORDATA_RUNTIME": "/run/here",
    }
    paths = build(document(tmp_path, "[paths]\nstate = '/elsewhere'\n"), {}, environment).paths
    assert paths.state == Path("/var/lib/one")
    assert paths.credentials == Path("/run/credentials/x")
    assert paths.runtime == Path("/run/here")


def test_open_document_says_where_when_the_file_is_not_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not valid TOML: .*line 2"):
        document(tmp_path, "[http]\nx = \n")


def test_open_document_refuses_when_the_file_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "cordata.toml"
    path.write_bytes(b'[log]\nlevel = "\xff"\n')
    with pytest.raises(ConfigError, match="not valid TOML"):
        open_document(path)


def test_find_file_prefers_the_option_when_both_are_given(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.touch()
    two.touch()
    assert find_file(one, {"CORDATA_CONFIG": str(two)}) == one
    assert find_file(None, {"CORDATA_CONFIG": str(two)}) == two


def test_find_file_fails_when_a_named_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        find_file(tmp_path / "none.toml", {})


def numbers() -> list[tuple[str, float]]:
    """`section.key` and default of every number of the runtime."""
    return [
        (f"{section.name}.{key.name}", value)
        for section in fields(Config)
        if is_dataclass(values := getattr(Config(), section.name))
        for key in fields(values)
        if isinstance(value := getattr(values, key.name), int | float)
        and not isinstance(value, bool)
    ]


def test_every_number_has_bounds_and_a_default_within() -> None:
    assert sorted(name for name, _ in numbers()) == sorted(RANGES)
    for name, value in numbers():
        low, high = RANGES[name]
        assert low <= value <= high, name


@pytest.mark.parametrize("name", sorted(RANGES))
def test_number_is_refused_when_it_is_out_of_bounds(tmp_path: Path, name: str) -> None:
    section, _, key = name.partition(".")
    low, high = RANGES[name]
    whole = isinstance(dict(numbers())[name], int)
    for value in (low - 1 if whole else low - 1e-4, high + 1, -1, *(() if whole else (1e300,))):
        (found,) = problems(tmp_path, f"[{section}]\n{key} = {value}")
        assert found.startswith(f"[{section}] {key}: must be from {low} to {high}, not "), found


@pytest.mark.parametrize(
    "host", ["", "localhost", "smtp-1.example.com", "::1", "[::1]", "10.0.0.1"]
)
def test_mail_host_is_a_name_or_an_address(tmp_path: Path, host: str) -> None:
    path = tmp_path / "cordata.toml"
    path.write_text(f'[mail]\nhost = "{host}"\nsender = "Shop Ü <no-reply@shop.example>"\n')
    assert build(open_document(path), None).mail.host == host
