"""The reader names every problem of a file at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import time
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import pytest
from msgspec import Meta

from cordata.config import Config, Document, build, choose_app, find_file, open_document
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


@dataclass(frozen=True, kw_only=True)
class Tax:
    rate: Annotated[float, Meta(ge=0, le=1)] = 0.2


@dataclass(frozen=True, kw_only=True)
class Kinds:
    logo: Path | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    opens: time | None = None
    size: Annotated[int, Meta(ge=1)] = 1
    tax: Tax = field(default_factory=Tax)


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
        "[worker] services: must be a list, each item one of 'engine', 'http', 'pool', not ['htp']",
        "[http] max_conections: unknown key; the nearest known is max_connections",
        "[http] drain_s: must be a number from 0 to 3600, not -1",
        "[http] access_log: must be true or false, not 'yes'",
        "[store] url: must be a string, not 3",
        "[store] readers: must be a whole number from 1 to 64, not 99",
        "[mail] port: must be a whole number from 1 to 65535, not true",
        "[wroker]: unknown section; the nearest known is [worker]",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[engine]\nretry_first_s = 9\nretry_max_s = 3",
            "[engine] retry_first_s: must not be more",
        ),
        ("[engine]\npoll_s = 0", "[engine] poll_s: must be a number from 0.01 to 86400, not 0"),
        ("[engine]\npoll_s = nan", "[engine] poll_s: must be a number from 0.01 to 86400, not nan"),
        ("[engine]\npoll_s = inf", "[engine] poll_s: must be a number from 0.01 to 86400, not inf"),
        (
            "[engine]\npoll_s = 1e-9",
            "[engine] poll_s: must be a number from 0.01 to 86400, not 1e-09",
        ),
        (
            "[engine]\nconcurrency = 1000000000",
            "[engine] concurrency: must be a whole number from 1 to 1000",
        ),
        (
            "[engine]\nretention_s = 1e300",
            "[engine] retention_s: must be a number from 0 to 315360000",
        ),
        ('[mail]\nhost = "a\\u0000b"', "[mail] host: has a line break or another control"),
        ('[mail]\nhost = "a b"', "[mail] host: must be the name or address"),
        ('[mail]\nhost = "a:587"', "[mail] host: must be the name or address"),
        ('[mail]\nsender = "a@b\\r\\nBcc: c@d"', "[mail] sender: has a line break"),
        ('[mail]\nsender = "a"', "[mail] sender: must be an address"),
        ('[alert]\nto = ["a@b\\nBcc: c@d"]', "[alert] to: has a line break"),
        ('[alert]\nto = ["a@b.c", "ops"]', "[alert] to: names 'ops', which is no address"),
        ('[paths]\nstate = "/a\\u0000"', "[paths] state: has a line break or another control"),
        ('[broker]\nprefix = "a\\nb"', "[broker] prefix: has a line break"),
        ("[worker]\nservices = []", "[worker] services: must name at least one service"),
        ('[worker]\nservices = ["http", "http"]', "[worker] services: names 'http' twice"),
        ("[worker]\nservices = 'http'", "[worker] services: must be a list, each item one of"),
        ("worker = 3", "[worker]: must be a section, not 3"),
        ("[worker.x]\nstop_timeout_s = 3", "[worker] x: unknown key; the nearest known is"),
        ("[worker.2]\nstop_timeout = 3", "[worker.2] stop_timeout: unknown key; the nearest"),
        (
            "[worker.2]\nstop_timeout_s = 0",
            "[worker.2] stop_timeout_s: must be a number from 0.1 to 86400",
        ),
        ("[paths]\nstate = ''", "[paths] state: must be a path, not ''"),
        ("[log]\nlevel = 'loud'", "[log] level: must be one of 'debug', 'error', 'info',"),
        ("[http.limits]\nx = 1", "[http] limits: unknown key; the nearest known is"),
        (
            '[http]\ntrusted_proxies = ["10.0.0.0/40"]',
            "[http] trusted_proxies: names '10.0.0.0/40'",
        ),
        (
            '[metrics]\nlisten = "0.0.0.0:9464"',
            "[metrics] listen: must be a loopback address and a port",
        ),
        (
            '[metrics]\nlisten = "192.0.2.1:9464"',
            "[metrics] listen: must be a loopback address and a port",
        ),
        ('[metrics]\nlisten = ":9464"', "[metrics] listen: must be a loopback address"),
        (
            '[network]\nallow = ["https://pms.example.org/"]',
            "[network] allow: names 'https://pms.example.org/', which is no address, network or",
        ),
        (
            '[metrics]\nlisten = "[::]:9464"',
            "[metrics] listen: must be a loopback address and a port",
        ),
        (
            '[metrics]\nlisten = "::1:9464"',
            "[metrics] listen: must be a loopback address and a port",
        ),
        (
            '[metrics]\nlisten = "127.0.0.1"',
            "[metrics] listen: must be a loopback address and a port",
        ),
        (
            '[metrics]\nlisten = "127.0.0.1:0"',
            "[metrics] listen: must be a loopback address and a port",
        ),
        (
            '[metrics]\nlisten = "metrics.sock"',
            "[metrics] listen: must be a loopback address and a port",
        ),
        (
            '[metrics]\nlisten = "localhost:9464"',
            "[metrics] listen: must be a loopback address and a port",
        ),
        (
            '[status]\nlisten = "0.0.0.0:9465"',
            "[status] listen: must be a loopback address and a port",
        ),
        (
            '[metrics]\nenabled = false\nlisten = "127.0.0.1:9464"',
            "[metrics] listen: needs enabled = true",
        ),
    ],
)
def test_build_names_section_key_and_reason_when_one_value_is_bad(
    tmp_path: Path, text: str, problem: str
) -> None:
    (found,) = problems(tmp_path, text)
    assert found.startswith(problem)


@pytest.mark.parametrize(
    "listen", ["", "127.0.0.1:9464", "127.0.0.2:1", "[::1]:9464", "/run/cordata/metrics.sock"]
)
def test_metrics_may_be_served_to_this_host_only(tmp_path: Path, listen: str) -> None:
    config = build(document(tmp_path, f'[metrics]\nlisten = "{listen}"'), {}, {})
    assert config.metrics.listen == listen


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


def test_drop_ins_are_not_left_out_when_their_directory_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "cordata.toml").touch()
    (tmp_path / "conf.d").symlink_to("conf.d")  # fails for root, too
    with pytest.raises(ConfigError, match=r"conf\.d: Too many levels"):
        open_document(tmp_path / "cordata.toml")


@pytest.mark.parametrize("name", ["cordata.toml", "conf.d/hub.toml"])
def test_find_file_refuses_to_choose_between_two_applications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there, there / "conf.d"):
        directory.mkdir(mode=0o755)
    (here / "cordata.toml").write_text('[app]\nimport = "mine:app"\n')
    served = there / "cordata.toml"
    served.write_text("[log]\nlevel = 'info'\n")
    monkeypatch.chdir(here)
    # The package's file alone names none.
    assert find_file(None, {}, default=served) == here / "cordata.toml"
    (there / name).write_text('[app]\nimport = "served:app"\n')
    with pytest.raises(ConfigError, match="two applications") as raised:
        find_file(None, {}, default=served)
    assert raised.value.hint == f"--config {here}/cordata.toml, or --config {served}"
    assert find_file(served, {}, default=served) == served
    monkeypatch.chdir(there)
    assert find_file(None, {}, default=served) == served
    monkeypatch.chdir("/")
    assert find_file(None, {}, default=served) == served


def test_find_file_fails_when_a_named_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        find_file(tmp_path / "none.toml", {})


def numbers() -> dict[str, tuple[Any, float]]:
    """Type and default of every number of the runtime, by `section.key`."""
    return {
        f"{section.name}.{key.name}": (hints[key.name], value)
        for section in fields(Config)
        if is_dataclass(values := getattr(Config(), section.name))
        and (hints := get_type_hints(type(values), include_extras=True))
        for key in fields(values)
        if isinstance(value := getattr(values, key.name), int | float)
        and not isinstance(value, bool)
    }


@pytest.mark.parametrize("name", sorted(numbers()))
def test_number_has_limits_and_a_default_within(tmp_path: Path, name: str) -> None:
    section, _, key = name.partition(".")
    kind, default = numbers()[name]
    _, limits = get_args(kind)
    assert limits.ge <= default <= limits.le
    whole = isinstance(default, int)
    below = limits.ge - 1 if whole else limits.ge - 1e-4
    word = "whole number" if whole else "number"
    for value in (below, limits.le + 1, -1, *(() if whole else (1e300,))):
        (found,) = problems(tmp_path, f"[{section}]\n{key} = {value}")
        expected = f"[{section}] {key}: must be a {word} from {limits.ge} to {limits.le}, not "
        assert found.startswith(expected), found


def test_build_reads_every_kind_of_type_that_an_application_may_declare(tmp_path: Path) -> None:
    text = "logo = 'a.png'\nprices = {room = 3}\nopens = 08:30:00\ntax.rate = 0.1\n"
    config = build(document(tmp_path, "[kinds]\n" + text), {"kinds": Kinds}, {})
    assert config.settings["kinds"] == Kinds(
        logo=tmp_path / "a.png", prices={"room": 3.0}, opens=time(8, 30), tax=Tax(rate=0.1)
    )
    text = "logo = 1\nprices = {room = 'x'}\nopens = 1\nsize = 0\ntax.rate = 2\ntax.rat = 1\n"
    assert problems(tmp_path, "[kinds]\n" + text, {"kinds": Kinds}) == [
        "[kinds] logo: must be a path, not 1",
        "[kinds] prices: must be a table, each value a number, not a table",
        "[kinds] opens: must be a time, not 1",
        "[kinds] size: must be a whole number from 1, not 0",
        "[kinds.tax] rat: unknown key; the nearest known is rate",
        "[kinds.tax] rate: must be a number from 0 to 1, not 2",
    ]


@pytest.mark.parametrize(
    "host", ["", "localhost", "smtp-1.example.com", "::1", "[::1]", "10.0.0.1"]
)
def test_mail_host_is_a_name_or_an_address(tmp_path: Path, host: str) -> None:
    path = tmp_path / "cordata.toml"
    path.write_text(f'[mail]\nhost = "{host}"\nsender = "Shop Ü <no-reply@shop.example>"\n')
    assert build(open_document(path), None).mail.host == host


def placed(tmp_path: Path, own: str, **drop_ins: str) -> Path:
    """A configuration file with files beside it in conf.d."""
    (tmp_path / "conf.d").mkdir(exist_ok=True)
    for name, text in drop_ins.items():
        (tmp_path / f"conf.d/{name}.toml").write_text(text)
    path = tmp_path / "cordata.toml"
    path.write_text(own)
    return path


HUB = '[app]\nimport = "hub.app:app"\n[shop]\nowner = "Eva"\n[http]\nmax_headers = 50\n'


def test_drop_in_sets_what_the_file_does_not(tmp_path: Path) -> None:
    own = "[http]\nmax_headers = 70\n[pool.a]\nworkers = ['1']\ncommands = ['x']\n"
    more = "[http]\nmax_body_bytes = 9\nmax_headers = 60\n[pool]\nmax_calls = 3\n"
    found = open_document(placed(tmp_path, own, hub=HUB, more=more))
    config = build(found, {"shop": Shop}, {})
    assert choose_app(found, None).import_ == "hub.app:app"
    assert (config.http.max_headers, config.http.max_body_bytes) == (70, 9)
    assert config.pools["a"].max_calls == 3 and config.settings["shop"] == Shop(owner="Eva")
    names = ("conf.d/hub.toml", "conf.d/more.toml", "cordata.toml")
    assert list(found.files) == [tmp_path / name for name in names]


def test_drop_in_of_another_application_does_not_count(tmp_path: Path) -> None:
    path = placed(tmp_path, '[app]\nimport = "own:app"\n', hub=HUB)
    for found in (open_document(path), open_document(placed(tmp_path, "", hub=HUB), "own:app")):
        assert build(found, {}, {}).http.max_headers == 100 and list(found.files) == [path]
    same = open_document(placed(tmp_path, '[app]\nimport = "hub.app:app"\n', hub=HUB))
    assert build(same, {"shop": Shop}, {}).http.max_headers == 50


def test_drop_ins_that_name_two_applications_are_refused_unless_the_file_decides(
    tmp_path: Path,
) -> None:
    other = '[app]\nimport = "other:app"\n'
    path = placed(tmp_path, "", hub=HUB, other=other)
    with pytest.raises(ConfigError) as caught:
        open_document(path)
    assert caught.value.problems == (
        f"{tmp_path}/conf.d/hub.toml names the application hub.app:app",
        f"{tmp_path}/conf.d/other.toml names the application other:app",
    )
    path.write_text(other)
    assert list(open_document(path).files) == [tmp_path / "conf.d/other.toml", path]


def test_problem_names_the_file_that_has_the_key(tmp_path: Path) -> None:
    bad = "[htpp]\n[http]\nmax_headers = 0\nmax_header = 1\n"  # broken.toml has max_headers, too
    path = placed(tmp_path, "[http]\nmax_body_bytes = 0\n", bad=bad, broken=HUB)
    with pytest.raises(ConfigError) as caught:
        build(open_document(path), {"shop": Shop}, {})
    named = [problem.removeprefix(f"{tmp_path}/") for problem in caught.value.problems]
    assert [text.split(": ")[:2] for text in named] == [
        ["conf.d/bad.toml", "[http] max_header"],
        ["cordata.toml", "[http] max_body_bytes"],
        ["conf.d/bad.toml", "[htpp]"],
    ]
    placed(tmp_path, "", bad="[http\n")
    with pytest.raises(ConfigError, match=r"conf.d/bad.toml: not valid TOML"):
        open_document(path)
