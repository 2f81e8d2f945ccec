// Runs the page's script in Node, with as much of a document as it uses, against the server at process.argv[2].
"use strict";
const fs = require("fs");

class Node {
  constructor(name, data = "") { Object.assign(this, { localName: name, data, childNodes: [], style: {}, value: "", parentNode: null }); }
  get firstChild() { return this.childNodes[0] ?? null; }
  get nextSibling() { return this.parentNode.childNodes[this.parentNode.childNodes.indexOf(this) + 1] ?? null; }
  get textContent() { return this.data + this.childNodes.map(child => child.textContent).join(""); }
  insertBefore(child, before) {
    child.parentNode?.removeChild(child);
    this.childNodes.splice(before ? this.childNodes.indexOf(before) : this.childNodes.length, 0, child);
    child.parentNode = this;
  }
  appendChild(child) { this.insertBefore(child, null); }
  removeChild(child) { this.childNodes.splice(this.childNodes.indexOf(child), 1); child.parentNode = null; }
  setAttribute(name, value) { this[name] = value; }
  removeAttribute(name) { this[name] = undefined; }
  addEventListener(kind, act) { this[kind] = event => act.call(this, { type: kind, target: this, ...event }); }
  removeEventListener(kind) { this[kind] = undefined; }
  find(id) { return this.id === id ? this : this.childNodes.reduce((found, child) => found ?? child.find(id), undefined); }
  replaceChildren() {}
  focus() {}
  setSelectionRange(at) { this.caret = at; }
}

class Source extends EventTarget {
  static refused = 0;
  OPEN = 1; CLOSED = 2; readyState = 0; stop = new AbortController();
  constructor(path) { super(); this.run(path).catch(() => {}); }
  close() { this.readyState = this.CLOSED; this.stop.abort(); }
  async run(path) {
    if (Source.refused && Source.refused--) { this.readyState = this.CLOSED; return setTimeout(() => this.dispatchEvent(new Event("error"))); }
    const response = await fetch(path, { signal: this.stop.signal, headers: { Accept: "text/event-stream" } });
    this.readyState = response.ok ? this.OPEN : this.CLOSED;
    if (!response.ok) this.dispatchEvent(new Event("error"));
    let text = "";
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      const blocks = (text + piece).split("\n\n");
      text = blocks.pop();
      for (const block of blocks) {
        const { event, data } = Object.fromEntries(block.split("\n").map(line => line.split(/: ?(.*)/)));
        if (data) this.dispatchEvent(new MessageEvent(event, { data }));
      }
    }
  }
}

const [url, page, large] = process.argv.slice(2), network = fetch, body = new Node("body"), listeners = {};
body.id = "page";
globalThis.document = { createElement: name => new Node(name), createTextNode: text => new Node(null, text), getElementById: id => body.find(id) };
let hash = "";
globalThis.location = { get hash() { return hash; }, set hash(text) { hash = text; listeners.hashchange(); } };
globalThis.addEventListener = (kind, act) => { listeners[kind] = act; };
globalThis.localStorage = {};
globalThis.EventSource = Source;
globalThis.getComputedStyle = () => ({});
globalThis.uPlot = class { constructor(options, data) { charted = this; this.names = String(options.series.map(each => each.label)); this.setData(data); } setData(data) { this.rows = data[0].length; } setScale() {} };
uPlot.paths = { bars() {} };
globalThis.fetch = async (path, options) => {
  if (down && path.includes("limit")) { down = false; throw new Error("the server is down"); }
  return network(url + path.slice(1), options);
};
let down = false;

let charted = null;
const $ = id => body.find(id), text = id => $(id)?.textContent ?? "", pause = seconds => new Promise(done => setTimeout(done, 1000 * seconds));
const lines = () => ($("rows")?.childNodes ?? []).map(tr => [tr.class, ...tr.childNodes.map(td => td.textContent)]);

async function until(what, holds) {
  for (let n = 0; n < 1500; n++) { if (holds()) return; await pause(0.02); }
  throw new Error(`${what}: ${JSON.stringify([lines().slice(0, 9), text("error"), text("state"), text("why"), text("more")])}`);
}

async function run(sql) { $("sql").value = sql; $("run").click(); }

(async () => {
  const script = fs.readFileSync(page, "utf8").match(/<script>([^]*)<\/script>/)[1];
  (0, eval)(["inspect/preact.js", "server/page/chart.js"].map(file => page.replace("server/page/page.html", file)).map(file => fs.readFileSync(file, "utf8")).join("\n") + script);
  await until("views", () => text("views").includes("totals view, 2 rows"));
  if (large) {
    location.hash = "#v=orders";
    await until("some rows", () => lines().length === 2 && body.textContent.includes("of many more"));
    down = true;
    await until("no answer", () => text("state") === "the server does not answer" && lines().length === 2);
    await until("an answer again", () => text("state") === "at epoch 0");
    console.log("fine");
    process.exit(0);
  }
  await run("select customer,\n  nope from totals");
  await until("a position", () => text("error").endsWith("  nope from totals\n  ^"));
  if ($("sql").caret !== "select customer,\n  ".length) throw new Error(`caret at ${$("sql").caret}`);
  Source.refused = 1;  // as where too many queries run, which is tried again
  await run("select customer, total from totals");
  await until("rows", () => JSON.stringify(lines()) === '[["","ada","42"],["","bob","5"]]' && !$("error"));
  await network(url + "tables/orders", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"insert": [{"id": 9, "customer": "bob", "price": 1}]}' });
  await until("a change", () => JSON.stringify(lines().slice(0, 2)) === '[["","ada","42"],["came","bob","6"]]');
  await until("what went is gone", () => lines().length === 2);
  await until("one query", () => text("summary").includes("epoch 1, 1 query"));
  $("head").firstChild.childNodes[1].firstChild.click();
  await until("order", () => lines()[0][1] === "bob");
  await run("select customer from totals order by total desc, customer limit 2");
  await until("the order of the query", () => text("title") === "Result" && JSON.stringify(lines().map(each => each.slice(1))) === '[["ada"],["bob"]]');
  const [digits, names] = [[..."abcdef"].map((t, n) => `${3 ** n} * (${t}.id % 3)`), [..."abcdef"].map(t => `orders ${t}`)];
  await run(`select ${digits.join(" + ")} - 9 as n from ${names.join(", ")} where ${[..."abcdef"].map(t => `${t}.id < 4`).join(" and ")} order by n desc`);
  await until("the first page", () => lines().length === 500 && lines()[0][1] === "719" && lines()[499][1] === "220");
  if (text("more") !== "rows 1 to 500 of 729" || !$("previous").disabled) throw new Error(text("more"));
  $("next").click();
  await until("the second page", () => lines().length === 229 && lines()[0][1] === "219" && lines()[228][1] === "-9");
  if (text("more") !== "rows 501 to 729 of 729" || !$("next").disabled) throw new Error(text("more"));
  $("previous").click();
  await until("the first page again", () => lines().length === 500);
  location.hash = "#v=totals";
  await until("a view", () => text("title") === "totals" && lines().length === 2);
  $("rows").firstChild.click();
  await until("why", () => text("why").startsWith("('ada', 42) follows from\n  orders: (1, 'ada', 30)\n  orders: (3, 'ada', 12)\n\n(('ada', 42),) by group"));
  $("missing").change({ target: { value: "customer" } });
  await until("no value", () => text("why").startsWith("no row with customer = '':"));
  $("missing").change({ target: { value: "customer = eve" } });
  await until("why not", () => text("why") === "no row with customer = 'eve':\n  table orders in totals: no row where customer = 'eve'");
  $("filter").input({ target: { value: "BOB" } });
  await until("a filter", () => JSON.stringify(lines()) === '[["","bob","6"]]');
  $("chart").click();
  await until("a chart", () => charted?.rows === 1);
  $("filter").input({ target: { value: "" } });
  await until("a chart of all rows", () => charted.rows === 2);
  if ($("earlier").childNodes.length !== 4) throw new Error(`${$("earlier").childNodes.length} queries`);
  for (const [type, greatest] of [["double", "nan"], ["float", "inf"]]) {
    await run(`select x from (values ('10.5', '7'), ('9', '1'), ('1e3', '-inf'), (null, 'inf'), ('10.5', '${greatest}'), ('10.5', '-inf'), ('10.5', null)) v(d, x) order by cast(d as decimal(9, 2)) desc nulls first, cast(x as ${type})`);
    await until(`${type}s`, () => JSON.stringify(lines().map(each => each[1])) === `["inf","-inf","-inf","7","${greatest}","null","1"]`);
  }
  await run("select day, customer, sum(0.1e0 + 0.2e0) as x from orders, (values (timestamp '2025-01-01'), (timestamp '2025-02-01')) d(day) group by 1, 2");
  await until("a line of each text", () => charted.names === "day,ada,bob" && charted.rows === 2 && String(lines()[0]) === ",2025-01-01,ada,0.6");
  Source.refused = 1;  // as where too many clients follow
  location.hash = "#v=orders";
  await until("the table", () => text("title") === "orders" && lines().length === 4);
  await until("a place", () => text("summary").includes("0 queries, 1 subscriber"));
  await network(url + "tables/orders", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"insert": [{"id": 8, "customer": "bob", "price": 1}]}' });
  await until("a row more", () => lines().length === 5);
  change(2, [{ row: { id: 1, customer: "ada", price: 30 }, count: 2 ** 32 }], 0);
  await until("a row very often", () => lines().length === 500 && text("size") === "4,294,967,301 rows");
  location.hash = "#";
  await run("create view v as select nope from orders");
  await until("a refusal", () => text("error").includes("nope at line 1, column 25"));
  await run("-- all\ncreate view v as select count(*) as n from orders");
  await until("a definition", () => text("state").startsWith("done at epoch") && !$("error") && text("views").includes("v view, 1 row"));
  await run("drop view v");
  await until("no view", () => !text("views").includes("v view, 1 row"));
  console.log("fine");
  process.exit(0);
})().catch(error => { console.error(error); process.exit(1); });
