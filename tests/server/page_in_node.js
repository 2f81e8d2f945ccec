// Runs the page's script in Node, with as much of a document as it uses, against the server at process.argv[2].
"use strict";
const fs = require("fs");

class Element {
  constructor(name) { this.name = name; this.children = []; this.text = ""; this.value = ""; this.hidden = false; this.className = ""; this.parts = {}; }
  get textContent() { return this.text + this.children.map(child => child.textContent).join(""); }
  set textContent(text) { this.text = text; this.children = []; }
  append(...children) { this.children.push(...children.map(child => (child.parent = this, child))); }
  replaceChildren(...children) { this.text = ""; this.children = []; this.append(...children); }
  remove() { this.parent.children = this.parent.children.filter(child => child !== this); }
  querySelector(name) { return this.parts[name] ??= new Element(name); }
  focus() {}
  setSelectionRange(at) { this.caret = at; }
}

const [url, page] = process.argv.slice(2), elements = {}, network = fetch;
globalThis.document = { createElement: name => new Element(name), getElementById: id => elements[id] ??= new Element(id) };
globalThis.requestAnimationFrame = draw => setTimeout(draw, 0);
globalThis.fetch = (path, options) => network(url + path.slice(1), options);

const $ = id => document.getElementById(id), pause = seconds => new Promise(done => setTimeout(done, 1000 * seconds));
const lines = () => $("result").querySelector("tbody").children.map(tr => [tr.className, ...tr.children.map(td => td.textContent)]);

async function until(what, holds) {
  for (let n = 0; n < 500; n++) { if (holds()) return; await pause(0.02); }
  throw new Error(`${what}: ${JSON.stringify([lines(), $("error").textContent, $("state").textContent])}`);
}

async function run(sql) { $("sql").value = sql; $("run").onclick(); }

(async () => {
  (0, eval)(fs.readFileSync(page, "utf8").match(/<script>([^]*)<\/script>/)[1]);
  await until("views", () => $("views").textContent.includes("totals view, 2 rows"));
  await run("select customer,\n  nope from totals");
  await until("a position", () => !$("error").hidden && $("error").textContent.endsWith("  nope from totals\n  ^"));
  if ($("sql").caret !== "select customer,\n  ".length) throw new Error(`caret at ${$("sql").caret}`);
  await run("select customer, total from totals");
  await until("rows", () => JSON.stringify(lines()) === '[["","ada","42"],["","bob","5"]]' && $("error").hidden);
  await network(url + "tables/orders", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"insert": [{"id": 9, "customer": "bob", "price": 1}]}' });
  await until("a change", () => JSON.stringify(lines().slice(0, 2)) === '[["","ada","42"],["came","bob","6"]]');
  await until("what went is gone", () => lines().length === 2);
  await until("one query", () => $("summary").textContent.includes("epoch 1, 1 queries"));
  $("result").querySelector("thead").children[0].children[1].onclick();
  await until("order", () => lines()[0][1] === "bob");
  $("views").children[0].children[0].onclick();
  await until("the table", () => $("title").textContent === "orders" && lines().length === 4);
  await until("the query has ended", () => $("summary").textContent.includes("0 queries"));
  $("stop").onclick();
  console.log("fine");
  process.exit(0);
})().catch(error => { console.error(error); process.exit(1); });
