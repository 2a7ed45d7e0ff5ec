"""CITATION.cff: the required fields of its schema 1.2.0, and agreement with pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# of the schema: required fields, and allowed ones (those in use)
REQUIRED = {"authors", "cff-version", "message", "title"}
ALLOWED = REQUIRED | {"abstract", "keywords", "license", "type", "version"}
ENTITY = {"name", "address", "alias", "city", "country", "email", "orcid", "website"}


def test_required_fields() -> None:
    assert CITATION.keys() >= REQUIRED and CITATION.keys() <= ALLOWED
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    for name in ("message", "title", "abstract"):
        assert isinstance(CITATION[name], str) and CITATION[name].strip()
    assert CITATION["authors"] and all("name" in author and author.keys() <= ENTITY for author in CITATION["authors"])
    keywords = CITATION["keywords"]
    assert keywords and len(set(keywords)) == len(keywords) and all(isinstance(word, str) for word in keywords)


def test_it_says_what_the_package_says() -> None:
    assert isinstance(CITATION["version"], str) and CITATION["version"] == PROJECT["version"]
    assert CITATION["license"] == PROJECT["license"] and re.fullmatch(r"[\w.-]+", CITATION["license"])
    assert CITATION["authors"] == PROJECT["authors"]
    assert CITATION["keywords"] == PROJECT["keywords"]
