/**
 * Colours of code: comments, texts, numbers, words of the language, names that are called.
 *
 * One pass from the left to the right by one pattern per language, none of which goes back over more than a line: the
 * time is that of the length. It knows no grammar; where it errs a word has another colour.
 */

import { el } from "./dom.js";

const words = (text) => new Set(text.split(" "));

const LINE = /\/\/[^\n]*/;
const BLOCK = /\/\*[^]*?(?:\*\/|(?![^]))/; // (?![^]) is the end of all
const HASH = /#[^\n]*/;
const LOOSE_HASH = /(?:^|(?<=\s))#[^\n]*/;
const DASHES = /--[^\n]*/;
const DOUBLE = /"(?:[^"\\\n]|\\[^])*(?:"|$|(?=\n))/;
const SINGLE = /'(?:[^'\\\n]|\\[^])*(?:'|$|(?=\n))/;
const TICKED = /`(?:[^`\\]|\\[^])*(?:`|(?![^]))/;
const TRIPLE = /"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^]))/;
const CHARACTER = /'(?:[^'\\\n]|\\[^\n]{1,9})'/; // where a single quote may stand alone, too

const LONG = /\[\[[^]*?(?:\]\]|(?![^]))/;

/** comments, texts: patterns; keywords: words; more: what else there is, see `patternOf`. */
const language = (comments, texts, keywords, more = {}) => ({ comments, texts, keywords: words(keywords), ...more });

// of all languages with braces together: few of their words are names in others
const BRACES = language([LINE, BLOCK], [TICKED, TRIPLE, DOUBLE, SINGLE],
  "abstract any as assert async auto await bool boolean break byte case catch chan char class concept const constexpr continue " +
  "crate debugger declare default defer delegate delete do double dyn else enum explicit export extends extern fallthrough false " +
  "final finally float fn for foreach friend from fun func function go goto guard if impl implements import in infer inline " +
  "instanceof int interface internal is keyof lateinit let long loop match mod move mut mutable namespace never new nil noexcept " +
  "null nullptr of operator override package private protected protocol pub public readonly requires return satisfies sealed " +
  "self short signed sizeof static str string struct super switch synchronized template this throw throws trait true try type " +
  "typedef typename typeof undefined union unknown unsafe unsigned use using val var virtual void volatile when where while " +
  "with yield NULL Self size_t usize isize i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 int32 int64 uint8 uint32 uint64 uint8_t " +
  "uint32_t uint64_t int32_t int64_t", { directives: true, decorators: true });

// of those with words: Ruby, Perl, R, Lua, Haskell, ...
const WORDS = language([HASH], [DOUBLE, SINGLE],
  "and begin break case catch class const continue data def defined? deriving do else elseif elsif end ensure false finally for " +
  "foreach function goto if import in instance lambda let library local macro match module my new next nil not of or our puts " +
  "raise repeat require rescue return self struct sub super switch then throw true try type undef unless until use using var " +
  "when where while yield TRUE FALSE NULL NA", { variables: true });

const LANGUAGES = {
  ruby: WORDS,
  lua: { ...WORDS, comments: [new RegExp(`--${LONG.source}`), DASHES], texts: [DOUBLE, SINGLE, LONG], variables: false },
  rust: { ...BRACES, texts: [DOUBLE, CHARACTER] },
  python: language([HASH], [TRIPLE, DOUBLE, SINGLE],
    "False None True and as assert async await break case class continue def del elif else except finally for from global if " +
    "import in is lambda match nonlocal not or pass raise return self try type while with yield", { decorators: true }),
  shell: language([LOOSE_HASH], [DOUBLE, /'[^']*(?:'|(?![^]))/],
    "alias break case cd continue declare do done echo elif else esac eval exec exit export fi for function if in local " +
    "printf read return set shift source sudo then trap unset until while", { variables: true }),
  sql: language([DASHES, BLOCK], [SINGLE, DOUBLE],
    "add all alter and as asc begin between by case check column commit constraint create cross database default delete desc " +
    "distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not " +
    "null offset on or order outer over partition primary references returning right rollback select set table then " +
    "transaction trigger union unique update values view when where with int integer text varchar", { ignoresCase: true }),
  json: language([LINE, BLOCK], [DOUBLE], "true false null", { keys: true }),
  yaml: language([LOOSE_HASH], [DOUBLE, SINGLE], "true false null yes no on off", { keys: true }),
  toml: language([HASH], [TRIPLE, DOUBLE, SINGLE], "true false inf nan", { keys: true }),
  css: language([BLOCK], [DOUBLE, SINGLE], "important from to and not only", { keys: true }),
  markup: language([/<!--[^]*?(?:-->|(?![^]))/], [], "", { tags: true }),
  lisp: language([/;[^\n]*/], [DOUBLE], "define defun let lambda if cond else and or not set! quote begin progn nil t"),
  tex: language([/%[^\n]*/], [], "", { commands: true }),
  text: null,
};

const ALIASES = Object.fromEntries(Object.entries({
  rust: "rs zig", python: "py python3 pycon nim", shell: "sh bash zsh fish console dockerfile docker make makefile",
  ruby: "rb perl pl r elixir julia jl", lua: "haskell hs", json: "jsonc json5 jsonl", yaml: "yml", toml: "ini conf",
  css: "scss less", markup: "html xml svg vue", lisp: "scheme clojure elisp", tex: "latex", sql: "postgresql mysql sqlite",
  text: "plaintext txt plain",
}).flatMap(([known, others]) => others.split(" ").map((other) => [other, known])));

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
  parent.append(kind ? el("span", { class: `hl-${kind}`, text }) : text);
}

/** Code as nodes; of a language that is not known, with the colours that most have; without a name without colours. */
export function highlight(code, name) {
  const given = name.toLowerCase();
  if (given === "diff" || given === "patch") return highlightDiff(code);
  const fragment = document.createDocumentFragment();
  const key = Object.hasOwn(ALIASES, given) ? ALIASES[given] : given;
  const known = Object.hasOwn(LANGUAGES, key) ? LANGUAGES[key] : given ? BRACES : null;
  if (!known) {
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
