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

const [url, page, large] = process.argv.slice(2), elements = {}, network = fetch;
globalThis.document = { createElement: name => new Element(name), getElementById: id => elements[id] ??= new Element(id) };
globalThis.location = { hash: "" };
globalThis.getComputedStyle = () => ({});
globalThis.uPlot = class { constructor(options, data) { charted = this; this.setData(data); } setData(data) { this.rows = data[0].length; } setScale() {} destroy() {} };
uPlot.paths = { bars() {} };
globalThis.requestAnimationFrame = draw => setTimeout(draw, 0);
globalThis.fetch = (path, options) => network(url + path.slice(1), options);

let charted = null;
const $ = id => document.getElementById(id), pause = seconds => new Promise(done => setTimeout(done, 1000 * seconds));
const lines = () => $("rows").children.map(tr => [tr.className, ...tr.children.map(td => td.textContent)]);

async function until(what, holds) {
  for (let n = 0; n < 500; n++) { if (holds()) return; await pause(0.02); }
  throw new Error(`${what}: ${JSON.stringify([lines().slice(0, 9), $("error").textContent, $("state").textContent, $("why").textContent])}`);
}

async function run(sql) { $("sql").value = sql; $("run").onclick(); }

(async () => {
  const script = fs.readFileSync(page, "utf8").match(/<script>([^]*)<\/script>/)[1];
  (0, eval)(fs.readFileSync(page.replace("page.html", "chart.js"), "utf8") + script);
  await until("views", () => $("views").textContent.includes("totals view, 2 rows"));
  if (large) {
    $("views").children[0].children[0].onclick();
    await until("some rows", () => lines().length === 2 && $("hint").textContent.includes("of many more"));
    console.log("fine");
    process.exit(0);
  }
  await run("select customer,\n  nope from totals");
  await until("a position", () => !$("error").hidden && $("error").textContent.endsWith("  nope from totals\n  ^"));
  if ($("sql").caret !== "select customer,\n  ".length) throw new Error(`caret at ${$("sql").caret}`);
  await run("select customer, total from totals");
  await until("rows", () => JSON.stringify(lines()) === '[["","ada","42"],["","bob","5"]]' && $("error").hidden);
  await network(url + "tables/orders", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"insert": [{"id": 9, "customer": "bob", "price": 1}]}' });
  await until("a change", () => JSON.stringify(lines().slice(0, 2)) === '[["","ada","42"],["came","bob","6"]]');
  await until("what went is gone", () => lines().length === 2);
  await until("one query", () => $("summary").textContent.includes("epoch 1, 1 query"));
  $("head").children[0].children[1].onclick();
  await until("order", () => lines()[0][1] === "bob");
  await run("select customer from totals order by total desc, customer limit 2");
  await until("the order of the query", () => $("title").textContent === "Result" && JSON.stringify(lines().map(each => each.slice(1))) === '[["ada"],["bob"]]');
  const [digits, names] = [[..."abcdef"].map((t, n) => `${3 ** n} * (${t}.id % 3)`), [..."abcdef"].map(t => `orders ${t}`)];
  await run(`select ${digits.join(" + ")} - 9 as n from ${names.join(", ")} where ${[..."abcdef"].map(t => `${t}.id < 4`).join(" and ")} order by n desc`);
  await until("the first page", () => lines().length === 500 && lines()[0][1] === "719" && lines()[499][1] === "220");
  if ($("more").textContent !== "rows 1 to 500 of 729" || !$("previous").disabled) throw new Error($("more").textContent);
  $("next").onclick();
  await until("the second page", () => lines().length === 229 && lines()[0][1] === "219" && lines()[228][1] === "-9");
  if ($("more").textContent !== "rows 501 to 729 of 729" || !$("next").disabled) throw new Error($("more").textContent);
  $("previous").onclick();
  await until("the first page again", () => lines().length === 500);
  $("views").children[2].children[0].onclick();
  await until("a view", () => $("title").textContent === "totals" && lines().length === 2);
  $("rows").children[0].onclick();
  await until("why", () => $("why").textContent.startsWith("('ada', 42) follows from\n  orders: (1, 'ada', 30)\n  orders: (3, 'ada', 12)\n\n(('ada', 42),) by group"));
  $("missing").value = "customer"; $("missing").onchange();
  await until("no value", () => $("why").textContent.startsWith("no row with customer = '':"));
  $("missing").value = "customer = eve";
  $("missing").onchange();
  await until("why not", () => $("why").textContent === "no row with customer = 'eve':\n  table orders in totals: no row where customer = 'eve'");
  $("filter").value = "BOB"; $("filter").oninput();
  await until("a filter", () => JSON.stringify(lines()) === '[["","bob","6"]]');
  $("chart").onclick();
  if (charted.rows !== 1) throw new Error(`${charted.rows} rows are charted`);
  $("filter").value = ""; $("filter").oninput();
  await until("a chart of all rows", () => charted.rows === 2);
  $("chart").onclick();
  if (location.hash !== "v=totals" || $("earlier").children.length !== 5) throw new Error(`${location.hash}, ${$("earlier").children.length}`);
  for (const [type, greatest] of [["double", "nan"], ["float", "inf"]]) {
    await run(`select x from (values ('10.5', '7'), ('9', '1'), ('1e3', '-inf'), (null, 'inf'), ('10.5', '${greatest}'), ('10.5', '-inf'), ('10.5', null)) v(d, x) order by cast(d as decimal(9, 2)) desc nulls first, cast(x as ${type})`);
    await until(`${type}s`, () => JSON.stringify(lines().map(each => each[1])) === `["inf","-inf","-inf","7","${greatest}","null","1"]`);
  }
  $("views").children[0].children[0].onclick();
  await until("the table", () => $("title").textContent === "orders" && lines().length === 4);
  await until("the query has ended", () => $("summary").textContent.includes("0 queries"));
  $("stop").onclick();
  await run("create view v as select nope from orders");
  await until("a refusal", () => !$("error").hidden && $("error").textContent.includes("nope at line 1, column 25"));
  await run("-- all\ncreate view v as select count(*) as n from orders");
  await until("a definition", () => $("state").textContent.startsWith("done at epoch") && $("error").hidden && $("views").textContent.includes("v view, 1 row"));
  await run("drop view v");
  await until("no view", () => !$("views").textContent.includes("v view, 1 row"));
  console.log("fine");
  process.exit(0);
})().catch(error => { console.error(error); process.exit(1); });
