/** The chat: which conversation is shown, and what the person does with it. */

import { Answers } from "./answers.js";
import { Composer } from "./composer.js";
import { ConversationView } from "./conversation_view.js";
import { byId, el, icon, iconButton, said, tokens } from "./dom.js";
import { History } from "./history.js";
import { CHOSEN, isAway, look, meant, model, setName, several, showGauge } from "./model.js";
import { Panels } from "./panels.js";
import { Settings } from "./settings.js";
import { store } from "./storage.js";
import { Tree, newId, textOf, wordsOf } from "./tree.js";

const PROBABILITIES = { logprobs: true, top_logprobs: 8 };
const MOST_SPOKEN = 2000; // characters of an answer
const SAMPLES = ["Explain what a cache is, in two sentences.", "Write a Python function that reverses a list.", "Give me three ideas for dinner."];

let chat = fresh();
let withProbabilities = false;
const settings = new Settings();
const answers = new Answers(onNews, (node) => view.update(node));
const history = new History({
  onOpen: open,
  onNew: () => open(fresh()),
  onRename: (named) => named.id === chat.id && show(),
  onOthers: (changed) => changed === chat && draw(),
  isBusy: (node) => answers.isRunning(node),
});
let tree = null; // its view, once it was wanted
const view = new ConversationView({
  state: (node) => answers.state(node),
  probabilities: () => withProbabilities,
  isSetting: (param) => settings.has(param),
  go: (id) => {
    chat.tree.go(id);
    view.follows = false;
    show();
    view.focus(id);
  },
  copy,
  edit: (node) => view.edit(node, (text, given) => ask(chat.tree.edit(node.id, text, given))),
  regenerate: (node) => answer(chat.tree.regenerate(node.id)),
  retry: (node) => answer(node.content || node.reasoning ? chat.tree.regenerate(node.id) : node),
  proceed: answer,
  branch: (node) => {
    chat.tree.goExactly(node.id);
    show();
    composer.focus();
    said("What you write next follows this message.");
  },
  remove: (node) => {
    const gone = chat.tree.remove(node.id);
    for (const each of gone) answers.stop(each);
    if (chat.tree.head === null) return history.drop(chat.id); // nothing is left to keep
    show();
    history.dropPictures(gone);
  },
  alternative: async (node, index, other) => {
    const { beginning } = await import("./alternatives.js");
    const begun = beginning(node, index, other);
    if (begun) answer(chat.tree.add(node.parent, { role: "assistant", reasoning: node.reasoning, ...begun }));
  },
  result: (node, given) => {
    let last = node;
    for (const { id, content } of given) last = chat.tree.add(last.id, { role: "tool", content, toolCallId: id });
    ask(last);
  },
  key: () => settings.open("key"),
  settings: (node) => settings.blame(node.errorParam, node.error),
});
const composer = new Composer({
  send: (content, given) => ask(chat.tree.add(chat.tree.head, { role: "user", content, ...given })),
  stop,
  before: () => view.step(0),
});

function fresh() {
  return { id: newId(), title: "", model: null, tree: new Tree() };
}

// --- answers ---
/** An answer to a node. */
function ask({ id }) {
  answer(chat.tree.add(id, { role: "assistant" }));
}

function answer(node) {
  if (several()) chat.model = node.model = model.id;
  const wanted = { ...settings.request(), ...(withProbabilities && PROBABILITIES), ...(model.id && { model: model.id }) };
  answers.fill({ ...chat, system: settings.system, shown: chat }, node, wanted);
  show();
  view.end();
  said(isAway(model.id) ? `${model.id} is being loaded.` : "An answer is being written.");
}

function onNews({ shown }, node) {
  history.save(shown);
  if (shown !== chat) return;
  view.update(node);
  showGauge(chat.tree.path());
  if (!answers.isRunning(node)) {
    said(node.error ?? (node.finish === "stopped" ? "Stopped." : `The answer is complete. ${node.content.slice(0, MOST_SPOKEN)}`));
    tree?.show(chat.tree);
    if (several()) welcome(); // it was loaded, or has failed
  }
  composer.setRunning(runs());
}

const head = () => chat.tree.get(chat.tree.head) ?? {};
const runs = () => answers.isRunning(head());

function stop() {
  answers.stop(head());
}

// --- what is shown ---
function open(other, at) {
  panels.served();
  chat = other;
  if (several()) setModel();
  const isFound = chat.tree.get(at);
  if (isFound) chat.tree.go(at);
  show();
  if (isFound) return view.focus(at);
  view.end();
  composer.focus();
}

function show() {
  draw();
  history.select(chat.id);
  const isEmpty = chat.tree.head === null;
  if (!isEmpty) history.save(chat);
  byId("welcome").hidden = !isEmpty;
  const first = chat.title || (isEmpty ? "New conversation" : wordsOf(chat.tree.path()[0]).slice(0, 60));
  byId("title").textContent = first;
  document.title = `${first} \u00b7 hybrid`;
}

function draw() {
  view.show(chat.tree);
  tree?.show(chat.tree);
  showGauge(chat.tree.path());
  composer.setRunning(runs());
}

async function copy(node, button) {
  try {
    await navigator.clipboard.writeText(textOf(node));
    button.replaceChildren(icon("check"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
    said("Copied.");
  } catch {
    said("The browser does not let this page copy.");
  }
}

// --- around it ---
const probabilities = iconButton("probabilities", "Probabilities of tokens, of answers from now on", () => {
  withProbabilities = !withProbabilities;
  probabilities.setAttribute("aria-pressed", String(withProbabilities));
  show();
}, { "data-do": "probabilities", "aria-pressed": "false" });
byId("top-left").append(iconButton("add", "New conversation (Ctrl+Shift+O)", () => open(fresh())));
byId("top-right").append(
  iconButton("settings", "Settings (Ctrl+Shift+S)", () => settings.open()),
  el("a", { class: "button bare", href: "state", target: "_blank", rel: "noopener", title: "State of the server", "aria-label": "State of the server" }, icon("server")),
  iconButton("help", "Keys and help (F1)", openHelp),
);
byId("to-end").append(icon("down"));
const panels = new Panels({
  history: {
    label: "Conversations (Ctrl+Shift+H)", place: "top-left",
    opened: () => byId("history").querySelector(".open[aria-current], button").focus(),
  },
  tree: { label: "Tree of turns (Ctrl+Shift+E)", place: "top-right", opened: openTree },
});
byId("top-right").prepend(probabilities);

const KEYS = { H: () => panels.toggle("history"), O: () => open(fresh()), E: () => panels.toggle("tree"), F: find, S: () => settings.open() };
const OF_MESSAGES = { e: "edit", r: "regenerate", b: "branch", c: "copy", g: "proceed", ArrowLeft: "before", ArrowRight: "after" };
document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  const act = event.ctrlKey && event.shiftKey && !event.altKey ? KEYS[key.toUpperCase()]
    : key === "F1" ? openHelp
      : event.altKey && (key === "ArrowUp" || key === "ArrowDown") ? () => view.step(key === "ArrowUp" ? -1 : 1) : null;
  if (act) {
    event.preventDefault();
    act();
  } else if (key === "Escape" && !document.querySelector("dialog[open], :popover-open")) {
    if (panels.served()) return;
    if (runs()) stop();
    else if (tree?.isOpen) panels.toggle("tree");
  } else if (!event.ctrlKey && !event.metaKey && !event.altKey && target.classList?.contains("message")) {
    target.querySelector(`[data-do="${OF_MESSAGES[key]}"]:enabled`)?.click();
  }
});

function find() {
  if (byId("history").hidden) panels.toggle("history");
  byId("history-search").focus();
}

const asked = () => ({ system: settings.system, settings: settings.request() });

byId("models").addEventListener("toggle", async ({ target, newState }) => {
  if (newState !== "open") return;
  const choose = (id) => {
    target.hidePopover();
    chat.model = id;
    store(CHOSEN, id);
    if (chat.tree.head !== null) history.save(chat);
    setModel();
    composer.focus();
    said(`${id} answers from now on.`);
  };
  (await import("./models_menu.js")).fillMenu({ choose, asked, path: () => chat.tree.path(), news: setModel });
});

async function openTree() {
  const { TreeView } = await import("./tree_view.js");
  const made = tree ?? (await TreeView.of({
    go: (id) => {
      panels.served();
      chat.tree.go(id);
      view.follows = false;
      show();
    },
    asked,
  }));
  tree ??= made;
  tree.open(chat.tree);
}

async function openHelp() {
  (await import("./help.js")).openHelp();
}

// parts that are loaded when they are wanted do not come where the server has gone
addEventListener("unhandledrejection", ({ reason }) => {
  said(`That has failed: ${reason?.message ?? reason}`);
  byId("spoken").classList.remove("unseen");
});

async function welcome() {
  try {
    await look();
    setModel();
  } catch (error) {
    byId("welcome").replaceChildren(el("h2", { text: "hybrid" }), el("p", { class: "warn", text: error.message }),
      error.status === 401 ? iconButton("settings", "Enter the key", () => settings.open("key"), { wide: true }) : "");
  }
}

/** The model of the conversation; without a chat template it goes on with texts: worth knowing first. */
function setModel() {
  const { id, status, meta, architecture, chat_template: template } = meant(chat.model);
  setName(id);
  model.context = meta.n_ctx ?? meta.n_ctx_train;
  model.eyes = architecture.input_modalities.includes("image");
  composer.setModel();
  showGauge(chat.tree.path());
  byId("question").placeholder = `Ask ${id}`;
  const cannot = template === false;
  byId("welcome").replaceChildren(
    el("h2", { text: id }),
    el("p", cannot ? { class: "warn", text: "This model has no chat template: it cannot chat here." }
      : { text: "It answers from this server, and nothing goes anywhere else. Conversations are kept in this browser." }),
    status.why ? el("p", { class: "warn", text: `It has failed: ${status.why}` }) : "",
    el("dl", {}, el("div", {}, el("dt", { text: "Context" }), el("dd", { text: tokens(model.context) }))),
    cannot ? "" : el("div", { class: "choices" },
      ...SAMPLES.map((text) => el("button", { class: "button", type: "button", text, onclick: () => composer.propose(text) }))),
  );
}
addEventListener("hybrid-key", welcome);
welcome();
history.load().then((latest) => (latest && chat.tree.head === null ? open(latest) : (show(), composer.focus())));
