"""The mistakes that the documentation shows, made; and what is said of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.host.documents import text_of

from cordata import App
from cordata.testing import open_app

_MISTAKE = re.compile(r"^## (.*?)\n\n```python\n(.*?)```\n\n```text\n(.*?)\n```$", re.M | re.S)
MISTAKES = {
    title: (code, told) for title, code, told in _MISTAKE.findall(text_of("develop/mistakes.md"))
}


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("title", MISTAKES)
async def test_mistake_is_told_in_the_documented_words(title: str) -> None:
    code, told = MISTAKES[title]
    module: dict[str, Any] = {"__name__": "mistakes"}
    exec(compile(code, "mistake.py", "exec"), module)
    async with open_app(App("documents")) as harness:
        with pytest.raises(Exception) as caught:
            await module["mistake"](harness.ctx)
    assert str(caught.value).startswith(told)


def test_every_mistake_with_code_is_made() -> None:
    assert len(MISTAKES) == text_of("develop/mistakes.md").count("```python") == 8
