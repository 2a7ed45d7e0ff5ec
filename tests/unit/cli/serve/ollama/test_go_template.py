"""Templates of Go's language in requests."""

import pytest

from hybrid.cli.serve.errors import RequestError
from hybrid.cli.serve.ollama.go_template import LONGEST, filled

BOTH = {"System": "S", "Prompt": "P"}


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("", ""),
        ("no action", "no action"),
        ("{{ .Prompt }}", "P"),
        ("{{.Prompt}}|{{ $.System }}", "P|S"),
        ("a\n{{- .Prompt -}}\n b", "aPb"),
        ("a {{ .Prompt -}}\n b {{- .System }} c", "a PbS c"),
        ("{{ if .System }}<{{ .System }}>{{ end }}{{ .Prompt }}", "<S>P"),
        ("{{ if .Suffix }}x{{ else }}y{{ end }}", "y"),
        ("{{ if .Suffix }}x{{ else if .Prompt }}y{{ else if .System }}z{{ else }}w{{ end }}", "y"),
        ("{{ if .Prompt }}{{ if .Suffix }}x{{ else }}y{{ end }}{{ else }}{{ .System }}{{ end }}", "y"),
        ("{{ if .Suffix }}{{ if .Prompt }}x{{ end }}{{ .System }}{{ end }}w", "w"),
        ("{{ if .Suffix }}{{ .Response }}{{ end }}{{ .Prompt }}", "P"),
        ("{{/* a comment */}}{{ .Prompt }}", "P"),
        ("{{- /* a comment */ -}} {{ .Prompt }}", "P"),
        ("<u>{{ .Prompt }}<a>{{ .Response }}</a>", "<u>P<a>"),
        ("-{{ .Prompt }}-", "-P-"),
    ],
)
def test_texts(template: str, wanted: str) -> None:
    assert filled(template, BOTH) == wanted


def test_names_in_values_are_text() -> None:
    assert filled("{{ .Prompt }}", {"Prompt": "{{ .System }}", "System": "S"}) == "{{ .System }}"


@pytest.mark.parametrize(
    ("template", "named"),
    [
        ("{{ range .Messages }}{{ end }}", "{{ range .Messages }} is not supported here"),
        ("{{ .Tools }}", "{{ .Tools }} is not supported here: only {{ .System }}"),
        ("{{ if eq .Role \"user\" }}{{ end }}", "{{ if eq .Role"),
        ("{{ if .Messages }}{{ end }}", "{{ .Messages }}"),
        ("{{ end }}", "{{ end }}"),
        ("{{ else }}", "{{ else }}"),
        ("{{ }}", "{{  }}"),
        ("{{ if .System }}", "{{ if }} without {{ end }}"),
        ("x" * (LONGEST + 1), "65537 characters"),
    ],
)  # fmt: skip
def test_refusals(template: str, named: str) -> None:
    with pytest.raises(RequestError) as error:
        filled(template, BOTH)
    assert named in str(error.value) and str(error.value).startswith("template: ") and "\n" not in str(error.value)
    assert error.value.param == "template"
