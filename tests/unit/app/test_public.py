"""The public names exist."""

from __future__ import annotations

import pytest

import cordata


def test_every_public_name_can_be_imported() -> None:
    for name in cordata.__all__:
        assert getattr(cordata, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Ap'"):
        cordata.Ap  # noqa: B018
