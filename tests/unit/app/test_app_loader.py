"""The App is found by name, and every way not to find it has a sentence of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordata.app import App
from cordata.app_loader import import_app, load, load_runtime, salvage
from cordata.errors import ConfigError


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    """A directory of modules that leaves no trace in this process."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(code: Path, name: str, text: str) -> None:
    (code / f"{name}.py").write_text(text)


def failure(spec: str, code: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        import_app(spec, [code])
    return caught.value


def test_import_app_finds_the_app_on_the_given_path(code: Path) -> None:
    write(code, "shop_a", "from cordata import App\napp = App('shop')\n")
    app = import_app("shop_a:app", [code])
    assert isinstance(app, App)
    assert app.name == "shop"


@pytest.mark.parametrize("spec", ["shop", "shop:", ":app", ""])
def test_import_app_refuses_when_the_name_has_no_two_parts(code: Path, spec: str) -> None:
    assert "is not module:attribute" in str(failure(spec, code))


def test_import_app_names_the_module_when_there_is_none(code: Path) -> None:
    error = failure("shop_none:app", code)
    assert "no module 'shop_none' (for shop_none:app)" in str(error)
    assert str(code) in (error.hint or "") and "install" not in (error.hint or "")


def test_import_app_says_which_directory_cannot_be_read_when_there_is_no_module(code: Path) -> None:
    hint = failure("shop_none:app", code / "none").hint or ""
    assert f"{code / 'none'}, which this process cannot read" in hint


def test_import_app_says_install_when_what_the_module_imports_is_missing(code: Path) -> None:
    write(code, "shop_imports", "import shop_library_none")
    error = failure("shop_imports:app", code)
    assert "no module 'shop_library_none' (for shop_imports:app)" in str(error)
    assert "install it" in (error.hint or "")


def test_import_app_names_the_attribute_when_there_is_none(code: Path) -> None:
    write(code, "shop_b", "")
    assert "shop_b has no 'app'" in str(failure("shop_b:app", code))


def test_import_app_refuses_when_it_is_something_else(code: Path) -> None:
    write(code, "shop_c", "app = 3\n")
    assert "shop_c:app is a int, not an App" in str(failure("shop_c:app", code))


def test_import_app_names_error_and_place_when_the_module_fails(code: Path) -> None:
    write(code, "shop_d", "x = 1\n\nx.no_such\n")
    text = str(failure("shop_d:app", code))
    assert "AttributeError: 'int' object has no attribute 'no_such'" in text
    assert f"(at {code}/shop_d.py:3)" in text


def test_import_app_names_no_line_of_pythons_importer_when_the_module_cannot_be_parsed(
    code: Path,
) -> None:
    write(code, "shop_g", "def x(:\n")
    text = str(failure("shop_g:app", code))
    assert "shop_g:app failed: SyntaxError: " in text and text.endswith("(shop_g.py, line 1)")
    write(code, "shop_h", "\nimport shop_g\n")
    assert str(failure("shop_h:app", code)).endswith(f"(at {code}/shop_h.py:2)")


def test_import_app_passes_a_wrong_registration_on(code: Path) -> None:
    write(
        code,
        "shop_e",
        "from cordata import App\napp = App('x')\napp.mount('api', print)\n",
    )
    assert "mount prefix 'api' must start with /" in str(failure("shop_e:app", code))


def test_load_names_wrong_file_and_missing_app_together(code: Path) -> None:
    file = code / "cordata.toml"
    file.write_text('[app]\nimport = "shop_none:app"\n[http]\ndrain = 3\n')
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert len(caught.value.problems) == 2
    assert "[http] drain: unknown key; the nearest known is drain_s" in caught.value.problems[1]


def test_load_names_every_problem_when_the_section_of_the_app_has_one(code: Path) -> None:
    file = code / "cordata.toml"
    file.write_text('[app]\npth = ["."]\n[http]\ndrain = 3\n')
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert [problem.split(": ")[1] for problem in caught.value.problems] == [
        "[app] pth",
        "[http] drain",
    ]


def test_load_checks_sections_of_the_app(code: Path) -> None:
    write(
        code,
        "shop_f",
        "from dataclasses import dataclass\nfrom cordata import App\napp = App('shop')\n"
        "@app.settings('shop')\n@dataclass(frozen=True)\nclass Shop:\n    owner: str = ''\n",
    )
    file = code / "cordata.toml"
    file.write_text('[app]\nimport = "shop_f:app"\npath = ["."]\n[shop]\nowner = "Ann"\n')
    loaded = load(file)
    assert loaded.config.settings["shop"].owner == "Ann"  # type: ignore[attr-defined]
    file.write_text('[app]\nimport = "shop_f:app"\npath = ["."]\n[shop]\nower = "Ann"\n')
    with pytest.raises(
        ConfigError, match=r"\[shop\] ower: unknown key; the nearest known is owner"
    ):
        load(file)


def test_load_runtime_needs_no_application(code: Path) -> None:
    file = code / "cordata.toml"
    file.write_text('[app]\nimport = "shop_none:app"\n[shop]\nx = 1\n[http]\ndrain_s = 3\n')
    assert load_runtime(file).http.drain_s == 3.0


def test_salvage_keeps_the_good_sections_of_a_broken_file(code: Path) -> None:
    file = code / "cordata.toml"
    file.write_text(
        '[http]\ndrain = 3\ndrian = 3\n[mail]\nhost = "mx"\n[alert]\nto = ["ops@example.org"]\n'
    )
    told: list[str] = []
    config = salvage(file, told.append)
    assert (config.mail.host, config.alert.to) == ("mx", ("ops@example.org",))
    assert len(told) == 2  # each problem


def test_salvage_gives_defaults_when_the_file_is_not_toml(code: Path) -> None:
    file = code / "cordata.toml"
    file.write_text("[http\n")
    told: list[str] = []
    assert salvage(file, told.append).alert.to == ()
    assert len(told) == 1 and "not valid TOML" in told[0]
