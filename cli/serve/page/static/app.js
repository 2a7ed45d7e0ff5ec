/** The chat: which conversation is shown, and what the person does with it. */

import { get } from "./api.js";
import { beginning } from "./alternatives.js";
import { Answers } from "./answers.js";
import { Composer } from "./composer.js";
import { ConversationView } from "./conversation_view.js";
import { byId, count, el, icon, iconButton } from "./dom.js";
import { openHelp } from "./help.js";
import { History } from "./history.js";
import { Settings } from "./settings.js";
import { TreeView } from "./tree_view.js";
import { Tree, newId } from "./tree.js";

const PROBABILITIES = { logprobs: true, top_logprobs: 8 };

let chat = fresh();
let withProbabilities = false;
const settings = new Settings();
const history = new History({
  onOpen: (found) => open(found),
  onNew: () => open(fresh()),
  onRename: (named) => named.id === chat.id && show(),
});
const answers = new Answers(onNews);
const tree = new TreeView({
  go: (id) => {
    chat.tree.go(id);
    show();
  },
  asked: () => ({ system: settings.system, settings: settings.request() }),
  closed: () => byId("top-right").querySelector('[data-do="tree"]').focus(),
});
const view = new ConversationView({
  state: (node) => answers.state(node),
  probabilities: () => withProbabilities,
  isSetting: (param) => settings.has(param),
  go,
  copy: copied,
  edit: (node) => view.edit(node, (text) => changed(chat.tree.edit(node.id, text)) && ask()),
  regenerate: (node) => answer(chat.tree.regenerate(node.id)),
  retry: (node) => answer(node),
  proceed: (node) => answer(node),
  branch: (node) => {
    chat.tree.goExactly(node.id);
    show();
    composer.focus();
  },
  remove: (node) => {
    for (const id of chat.tree.remove(node.id)) answers.stop({ id });
    show();
  },
  alternative: (node, index, other) => {
    const begun = beginning(node, index, other);
    if (begun) answer(chat.tree.add(node.parent, { role: "assistant", reasoning: node.reasoning, ...begun }));
  },
  result: (node, given) => {
    let parent = node.id;
    for (const { id, content } of given) parent = chat.tree.add(parent, { role: "tool", content, toolCallId: id }).id;
    ask();
  },
  key: () => settings.open("key"),
  settings: (node) => settings.blame(node.errorParam, node.error),
});
const composer = new Composer({
  send: (text) => changed(chat.tree.add(chat.tree.head, { role: "user", content: text })) && ask(),
  stop,
  changed: () => {},
  before: () => view.step(0),
});

function fresh() {
  return { id: newId(), title: "", tree: new Tree() };
}

// --- answers ---
function ask() {
  answer(chat.tree.add(chat.tree.head, { role: "assistant" }));
}

function answer(node) {
  view.end();
  const wanted = { ...settings.request(), ...(withProbabilities && PROBABILITIES) };
  answers.fill({ ...chat, system: settings.system, shown: chat }, node, wanted);
  show();
}

function onNews(of, node) {
  history.save(of.shown);
  if (of.shown !== chat) return;
  view.update(node);
  const running = answers.isRunning(node);
  if (!running) {
    said(node.error ?? (node.finish === "stopped" ? "Stopped." : "The answer is complete."));
    tree.show(chat.tree);
  }
  runs();
}

function stop() {
  const head = chat.tree.get(chat.tree.head);
  if (head) answers.stop(head);
}

function runs() {
  composer.setRunning(answers.isRunning(chat.tree.get(chat.tree.head) ?? {}));
}

// --- what is shown ---
function changed(node) {
  history.save(chat);
  return node;
}

function go(id) {
  chat.tree.go(id);
  show();
  view.focus(id);
}

function open(other) {
  if (matchMedia("(max-width: 62rem)").matches) panel.hidden = true;
  chat = other;
  show();
  view.end();
  composer.focus();
}

function show() {
  view.show(chat.tree);
  tree.show(chat.tree);
  history.select(chat.id);
  if (chat.tree.head !== null) history.save(chat);
  byId("welcome").hidden = chat.tree.head !== null;
  const first = chat.title || chat.tree.path()[0]?.content.slice(0, 60) || "New conversation";
  byId("title").textContent = first;
  document.title = `${first} \u00b7 hybrid`;
  runs();
}

/** For screen readers: once, when something has ended, not token by token. */
function said(text) {
  byId("spoken").textContent = "";
  setTimeout(() => (byId("spoken").textContent = text), 50);
}

async function copied(node, button) {
  try {
    await navigator.clipboard.writeText(node.content);
    button.replaceChildren(icon("check"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  } catch {
    said("The browser does not let this page copy.");
  }
}

// --- around it ---
const topLeft = byId("top-left");
const topRight = byId("top-right");
const panel = byId("history");
topLeft.append(iconButton("history", "Conversations (Ctrl+Shift+H)", () => toggleHistory(), { "data-do": "history" }),
  iconButton("add", "New conversation (Ctrl+Shift+O)", () => open(fresh())));
topRight.append(
  iconButton("probabilities", "Probabilities of tokens, of answers from now on", () => toggleProbabilities(), { "data-do": "probabilities", "aria-pressed": "false" }),
  iconButton("tree", "Tree of turns (Ctrl+Shift+E)", () => toggleTree(), { "data-do": "tree" }),
  iconButton("settings", "Settings (Ctrl+Shift+S)", () => settings.open()),
  el("a", { class: "button bare", href: "state", target: "_blank", rel: "noopener", title: "State of the server", "aria-label": "State of the server" }, icon("server")),
  iconButton("help", "Keys and help (F1)", openHelp),
);
byId("to-end").append(icon("down"));

function toggleHistory(shown = panel.hidden) {
  panel.hidden = !shown;
  if (shown) panel.querySelector("button")?.focus();
}

function toggleTree() {
  if (tree.isOpen) tree.close();
  else tree.open(chat.tree);
}

function toggleProbabilities() {
  withProbabilities = !withProbabilities;
  topRight.querySelector('[data-do="probabilities"]').setAttribute("aria-pressed", String(withProbabilities));
  show();
}

const KEYS = { H: toggleHistory, O: () => open(fresh()), E: toggleTree, S: () => settings.open() };
document.addEventListener("keydown", (event) => {
  const act = event.ctrlKey && event.shiftKey && !event.altKey ? KEYS[event.key.toUpperCase()] : null;
  if (act) {
    event.preventDefault();
    act();
  } else if (event.key === "F1") {
    event.preventDefault();
    openHelp();
  } else if (event.key === "Escape" && !document.querySelector("dialog[open], :popover-open")) {
    if (matchMedia("(max-width: 62rem)").matches && !panel.hidden) toggleHistory(false);
    else if (answers.isRunning(chat.tree.get(chat.tree.head) ?? {})) stop();
    else if (tree.isOpen) tree.close();
  } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    event.preventDefault();
    view.step(event.key === "ArrowUp" ? -1 : 1);
  } else if (!event.ctrlKey && !event.metaKey && !event.altKey && event.target.classList?.contains("message")) {
    const wanted = { e: "edit", r: "regenerate", b: "branch", c: "copy", g: "proceed", ArrowLeft: "before", ArrowRight: "after" }[event.key];
    event.target.querySelector(`[data-do="${wanted}"]:enabled`)?.click();
  }
});

/** Who answers here; without a chat template it goes on with texts, which is worth knowing first. */
async function welcome() {
  const place = byId("welcome");
  try {
    const [props, models] = await Promise.all([get("props"), get("v1/models")]);
    const name = models.data[0].id;
    byId("question").placeholder = `Ask ${name}`;
    place.replaceChildren(
      el("h2", { text: name }),
      props.chat_template
        ? el("p", { text: "It answers from this server, and nothing goes anywhere else. Conversations are kept in this browser." })
        : el("p", { class: "warn", text: "This model has no chat template: it cannot chat here." }),
      el("dl", {}, el("div", {}, el("dt", { text: "Context" }), el("dd", { text: `${count(props.default_generation_settings.n_ctx)} tokens` }))),
    );
  } catch (error) {
    place.replaceChildren(el("h2", { text: "hybrid" }), el("p", { class: "warn", text: error.message }),
      error.status === 401 ? iconButton("settings", "Enter the key", () => settings.open("key"), { wide: true }) : "");
  }
}
addEventListener("hybrid-key", welcome);

panel.hidden = matchMedia("(max-width: 62rem)").matches;
byId("history-close").append(iconButton("close", "Close", () => toggleHistory(false)));
welcome();
history.load().then((latest) => (latest && chat.tree.head === null ? open(latest) : show()));
