"""Fills in templates of Go's text/template, as far as requests to /api/generate need them.

    filled("{{ if .System }}<|system|>{{ .System }}{{ end }}<|user|>{{ .Prompt }}<|assistant|>{{ .Response }}",
           {"System": "", "Prompt": "Hello"})

The language here: {{ .Name }}, {{ if .Name }}, {{ else if .Name }}, {{ else }}, {{ end }}, {{/* comments */}}, and "-"
inside the braces, which removes white space outside of them. The text ends at {{ .Response }}: the model writes the
rest.
"""

import re
from collections.abc import Mapping

from hybrid.quant.ggml.errors import shown

from ..errors import RequestError

_ACTION = re.compile(r"\{\{(-(?=\s))?\s*(.*?)\s*((?<=\s)-)?\}\}", re.DOTALL)
_VARIABLE = re.compile(r"\$?\.(\w+)")
NAMES = ("System", "Prompt", "Suffix", "Response")
LONGEST = 1 << 16  # characters of a template


def filled(template: str, values: Mapping[str, str]) -> str:
    """The text of the template; names without a value are empty. RequestError: the template has something else."""
    if len(template) > LONGEST:
        raise RequestError(f"template: {len(template)} characters, this server takes {LONGEST}", param="template")
    said, shows = list[str](), list[tuple[bool, bool]]()  # of each open `if`: is its branch shown, was one shown
    at, trims = 0, False
    for action in _ACTION.finditer(template):
        text = template[at : action.start()]
        text = text.lstrip() if trims else text
        text = text.rstrip() if action[1] else text
        is_shown = all(shown for shown, _ in shows)
        if is_shown:
            said.append(text)
        at, trims, words = action.end(), bool(action[3]), action[2].split()
        if words[:1] == ["if"] and len(words) == 2:
            truth = bool(_value(words[1], values))
            shows.append((truth, truth))
        elif words[:1] == ["else"] and shows and (len(words) == 1 or (len(words) == 3 and words[1] == "if")):
            was = shows.pop()[1]
            truth = not was and (len(words) == 1 or bool(_value(words[2], values)))
            shows.append((truth, was or truth))
        elif words == ["end"] and shows:
            shows.pop()
        elif len(words) == 1:
            name = _name(words[0])
            if is_shown and name == "Response":
                return "".join(said)
            if is_shown:
                said.append(values.get(name, ""))
        elif not (action[2].startswith("/*") and action[2].endswith("*/")):
            raise _unknown(action[2])
    if shows:
        raise RequestError("template: {{ if }} without {{ end }}", param="template")
    rest = template[at:]
    return "".join([*said, rest.lstrip() if trims else rest])


def _value(word: str, values: Mapping[str, str]) -> str:
    return values.get(_name(word), "")


def _name(word: str) -> str:
    """The name of a variable."""
    found = _VARIABLE.fullmatch(word)
    if found is None or found[1] not in NAMES:
        raise _unknown(word)
    return found[1]


def _unknown(action: str) -> RequestError:
    known = ", ".join(f"{{{{ .{name} }}}}" for name in NAMES)
    return RequestError(
        f"template: {{{{ {shown(action, 60)} }}}} is not supported here: only {known}, if, else and end. "
        "Leave it out: the model has its own template.",
        param="template",
    )
