/**
 * Colours of code: comments, texts, numbers, words of the language, names that are called.
 *
 * One pass from the left to the right by one pattern per language, none of which goes back over more than a line: the
 * time is that of the length. It knows no grammar; where it errs a word has another colour.
 */

const words = (text) => new Set(text.split(" "));

const COMMON = words(
  "break case catch class const continue default do else enum export extends final finally for from function if " +
  "implements import in interface is let match new not null package private protected public return static struct " +
  "super switch this throw throws true false try type typeof use using var void while with yield async await",
);

const C_LINE = /\/\/[^\n]*/;
const C_BLOCK = /\/\*[^]*?(?:\*\/|(?![^]))/; // (?![^]) is the end of all
const HASH = /#[^\n]*/;
const DASHES = /--[^\n]*/;
const ANGLE = /<!--[^]*?(?:-->|(?![^]))/;
const SEMICOLON = /;[^\n]*/;
const PERCENT = /%[^\n]*/;
const DOUBLE = /"(?:[^"\\\n]|\\[^])*(?:"|$|(?=\n))/;
const SINGLE = /'(?:[^'\\\n]|\\[^])*(?:'|$|(?=\n))/;
const TICKED = /`(?:[^`\\]|\\[^])*(?:`|(?![^]))/;
const TRIPLE = /"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^]))/;
const CHARACTER = /'(?:[^'\\\n]|\\[^\n]{1,9})'/; // where a single quote may stand alone, too

/** comments, texts: patterns; keywords: words; ignoresCase: whether those may be written in capitals. */
const language = (comments, texts, keywords = COMMON, more = {}) => ({ comments, texts, keywords, ...more });

const C_LIKE = language([C_LINE, C_BLOCK], [DOUBLE, SINGLE], words(
  "alignas alignof auto bool break case catch char class concept const constexpr continue co_await co_return decltype " +
  "default delete do double else enum explicit export extern false final float for friend goto if inline int long " +
  "mutable namespace new noexcept nullptr operator override private protected public register requires return short " +
  "signed sizeof static static_assert static_cast struct switch template this throw true try typedef typename union " +
  "unsigned using virtual void volatile while NULL size_t uint8_t uint32_t uint64_t int32_t int64_t",
), { directives: true });

const SCRIPT = language([C_LINE, C_BLOCK], [TICKED, DOUBLE, SINGLE], words(
  "abstract any as async await boolean break case catch class const continue debugger declare default delete do else " +
  "enum export extends false finally for from function get if implements import in infer instanceof interface is keyof " +
  "let namespace never new null number of private protected public readonly return satisfies set static string super " +
  "switch symbol this throw true try type typeof undefined unknown var void while with yield",
));

const LANGUAGES = {
  python: language([HASH], [TRIPLE, DOUBLE, SINGLE], words(
    "False None True and as assert async await break case class continue def del elif else except finally for from " +
    "global if import in is lambda match nonlocal not or pass raise return self try type while with yield",
  ), { decorators: true }),
  javascript: SCRIPT,
  c: C_LIKE,
  java: language([C_LINE, C_BLOCK], [TRIPLE, DOUBLE, SINGLE], new Set([...COMMON, ...words(
    "abstract boolean byte char double float instanceof int long native record sealed short synchronized transient " +
    "volatile fun val when object override lateinit data internal open suspend companion string decimal namespace " +
    "foreach readonly virtual get set out ref params delegate event lock sizeof var guard func protocol extension",
  )]), { decorators: true }),
  rust: language([C_LINE, C_BLOCK], [DOUBLE, CHARACTER], words(
    "as async await box break const continue crate dyn else enum extern false fn for if impl in let loop macro match " +
    "mod move mut pub ref return self Self static struct super trait true type union unsafe use where while bool char " +
    "f32 f64 i8 i16 i32 i64 i128 isize str u8 u16 u32 u64 u128 usize",
  )),
  go: language([C_LINE, C_BLOCK], [TICKED, DOUBLE, SINGLE], words(
    "any bool break byte case chan complex64 const continue default defer else error fallthrough false float32 float64 " +
    "for func go goto if import int int32 int64 interface iota make map nil package range return rune select string " +
    "struct switch true type uint uint64 var",
  )),
  shell: language([/(?:^|(?<=\s))#[^\n]*/], [DOUBLE, /'[^']*(?:'|(?![^]))/], words(
    "alias break case cd continue declare do done echo elif else esac eval exec exit export fi for function if in " +
    "local printf read return set shift source sudo then trap unset until while",
  ), { variables: true }),
  sql: language([DASHES, C_BLOCK], [SINGLE, DOUBLE], words(
    "add all alter and as asc begin between by case check column commit constraint create cross database default " +
    "delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join " +
    "key left like limit not null offset on or order outer over partition primary references returning right rollback " +
    "select set table then transaction trigger union unique update values view when where with int integer text varchar",
  ), { ignoresCase: true }),
  json: language([C_LINE, C_BLOCK], [DOUBLE], words("true false null"), { keys: true }),
  yaml: language([/(?:^|(?<=\s))#[^\n]*/], [DOUBLE, SINGLE], words("true false null yes no on off"), { keys: true }),
  toml: language([HASH], [TRIPLE, DOUBLE, SINGLE], words("true false inf nan"), { keys: true }),
  css: language([C_BLOCK], [DOUBLE, SINGLE], words("important from to and not only"), { keys: true, directives: false }),
  markup: language([ANGLE], [], words(""), { tags: true }),
  ruby: language([HASH], [DOUBLE, SINGLE], new Set([...COMMON, ...words(
    "begin def defined? elsif end ensure module next nil or rescue self then undef unless until when and puts require " +
    "local repeat foreach sub my our elseif function library TRUE FALSE NULL NA",
  )]), { variables: true }),
  lua: language([/--\[\[[^]*?(?:\]\]|(?![^]))/, DASHES], [DOUBLE, SINGLE, /\[\[[^]*?(?:\]\]|(?![^]))/], words(
    "and break do else elseif end false for function goto if in local nil not or repeat return then true until while " +
    "where let module import case of data type class instance deriving",
  )),
  lisp: language([SEMICOLON], [DOUBLE], words("define defun let lambda if cond else and or not set! quote begin progn nil t")),
  tex: language([PERCENT], [], words(""), { commands: true }),
  text: null,
};

const ALIASES = {
  py: "python", python3: "python", pycon: "python", js: "javascript", mjs: "javascript", jsx: "javascript",
  ts: "javascript", tsx: "javascript", typescript: "javascript", h: "c", cpp: "c", "c++": "c", cc: "c", hpp: "c", cuda: "c",
  objc: "c", glsl: "c", zig: "rust", rs: "rust", golang: "go", cs: "java", "c#": "java", csharp: "java", kotlin: "java",
  kt: "java", swift: "java", scala: "java", dart: "java", php: "java", sh: "shell", bash: "shell", zsh: "shell",
  fish: "shell", console: "shell", dockerfile: "shell", docker: "shell", make: "shell", makefile: "shell",
  jsonc: "json", json5: "json", jsonl: "json", yml: "yaml", ini: "toml", conf: "toml", html: "markup", xml: "markup",
  svg: "markup", vue: "markup", rb: "ruby", perl: "ruby", pl: "ruby", r: "ruby", elixir: "ruby", nim: "python",
  julia: "ruby", jl: "ruby", haskell: "lua", hs: "lua", scheme: "lisp", clojure: "lisp", elisp: "lisp", latex: "tex",
  scss: "css", less: "css", postgresql: "sql", mysql: "sql", sqlite: "sql", plaintext: "text", txt: "text", plain: "text",
};

const NUMBER = /\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.[\d_]+)?(?:[eE][+-]?\d+)?)[a-zA-Z%]{0,4}\b/;
const NAME = /[A-Za-z_$][\w$]*[!?]?/;
const patterns = new Map();

/** One pattern for a language: its groups are the kinds, in this order. */
function patternOf(known) {
  const kinds = [
    ["comment", known.comments],
    ["text", known.texts],
    ["mark", known.tags ? [/<\/?[A-Za-z][\w:.-]*|\/?>/] : []],
    ["mark", known.directives ? [/^[ \t]*#[ \t]*\w+/] : []],
    ["mark", known.decorators ? [/@[\w.]+/] : []],
    ["mark", known.variables ? [/\$(?:\w+|\{[^}\n]{0,200}\}|[@#?!*$-])/] : []],
    ["mark", known.commands ? [/\\(?:[A-Za-z]+|[^])/] : []],
    ["key", known.keys ? [/(?<![\w-])[\w-]{1,80}(?=[ \t]{0,20}[:=])/] : []],
    ["key", known.tags ? [/(?<![\w:-])[\w:-]{1,80}(?==)/] : []],
    ["text", known.tags ? [/(?<==)(?:"[^"]*(?:"|(?![^]))|'[^']*(?:'|(?![^])))/] : []],
    ["number", [NUMBER]],
    ["name", [NAME]],
  ].filter(([, list]) => list.length);
  const source = kinds.map(([, list]) => `(${list.map((one) => one.source).join("|")})`).join("|");
  return { kinds: kinds.map(([kind]) => kind), expression: new RegExp(source, "gm") };
}

/** The kind of a name: a word of the language, something that is called, or nothing special. */
function kindOfName(known, name, code, end) {
  if (known.keywords.has(known.ignoresCase ? name.toLowerCase() : name)) return "word";
  if (code[end] === "(") return "call";
  return "";
}

/** Lines that were added, removed or are about a place. */
function highlightDiff(code) {
  const fragment = document.createDocumentFragment();
  for (const line of code.split(/(?<=\n)/)) {
    const kind = /^(?:@@|diff |index |---|\+\+\+)/.test(line) ? "comment" : { "+": "added", "-": "removed" }[line[0]];
    append(fragment, kind ?? "", line);
  }
  return fragment;
}

function append(parent, kind, text) {
  if (!kind) {
    parent.append(text);
    return;
  }
  const span = document.createElement("span");
  span.className = `hl-${kind}`;
  span.textContent = text;
  parent.append(span);
}

/**
 * Code as nodes; of a language that is not known, with the colours that most have.
 *
 * @param {string} code
 * @param {string} name of the language, or "": no colours
 * @returns {DocumentFragment}
 */
export function highlight(code, name) {
  const given = name.toLowerCase();
  if (given === "diff" || given === "patch") return highlightDiff(code);
  const fragment = document.createDocumentFragment();
  const key = Object.hasOwn(ALIASES, given) ? ALIASES[given] : given;
  const known = Object.hasOwn(LANGUAGES, key) ? LANGUAGES[key] : given ? C_LIKE : null;
  if (known === null) {
    fragment.append(code);
    return fragment;
  }
  if (!patterns.has(known)) patterns.set(known, patternOf(known));
  const { kinds, expression } = patterns.get(known);
  let plain = 0;
  for (const found of code.matchAll(expression)) {
    const index = found.findIndex((group, at) => at > 0 && group !== undefined) - 1;
    const end = found.index + found[0].length;
    const kind = kinds[index] === "name" ? kindOfName(known, found[0], code, end) : kinds[index];
    if (!kind) continue;
    if (found.index > plain) append(fragment, "", code.slice(plain, found.index));
    append(fragment, kind, found[0]);
    plain = end;
  }
  if (plain < code.length) append(fragment, "", code.slice(plain));
  return fragment;
}
