// The live page: what is there is changed in place, so that focus, selections, places and open rows stay.
const SOURCE = "<!doctype html>\n" + document.documentElement.outerHTML;  // before anything is added: a saved report is this page with its state
const SILENT = 3, STILL = 5, WINDOW = 5, KEPT = 480, SKEWED = 1.5, NOTABLE = .05;
const by = id => document.getElementById(id), saved = JSON.parse(by("saved").textContent);
const make = (name, text, kind) => { const e = document.createElement(name); if (text !== undefined) e.textContent = text; if (kind) e.className = kind; return e; };
const attribute = (node, name, value) => { if (node.getAttribute(name) !== value) node.setAttribute(name, value); };
const count = n => n.toLocaleString("en"), sum = (of, at) => of.reduce((all, one) => all + one[at], 0), percent = n => `${Math.round(100 * n)} %`;
const megabytes = n => `${count(Math.round(n / 1048576))} MB`;
const seconds = n => `${n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : count(Math.round(n))} s`;
const brief = n => n < 1000 ? `${n < 10 && n % 1 ? n.toFixed(1) : Math.round(n)}` : n < 1e6 ? `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)}k` : n < 1e9 ? `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)}M` : `${(n / 1e9).toFixed(1)}G`;
const few = pairs => pairs.slice(0, 3).map(([time, n]) => n > 1 ? `${time} ×${count(n)}` : time).join(", ") + (pairs.length > 3 ? pairs.at(-1)[0] === "…" ? " and more" : ` and ${pairs.length - 3} more` : "");
const bounded = n => Math.max(0, Math.min(1, n));
const views = new Map(), drawings = new Map(), samples = new Map(), past = [];
let paused = false, latest = null, gone = false;

// The child of `parent` for a key, made when first asked for; `end` drops those that were not asked for, and orders the rest.
function keyed(parent) {
  const known = parent.known || (parent.known = new Map()), asked = [];
  return {
    get(key, create) { let found = known.get(key); if (!found) known.set(key, found = create()); asked.push([key, found]); return found; },
    end() {
      const now = new Set(asked.map(([key]) => key)), focus = document.activeElement;
      for (const [key, found] of known) if (!now.has(key)) { for (const node of found.nodes) node.remove(); known.delete(key); }
      let last = null, moved = false;
      for (const [, found] of asked) for (const node of found.nodes) {
        const place = last ? last.nextSibling : parent.firstChild;
        if (place !== node) { parent.insertBefore(node, place); moved = true; }
        last = node;
      }
      if (moved && focus !== document.activeElement && focus.isConnected) focus.focus({preventScroll: true});
    },
  };
}

// -- small pictures ------------------------------------------------------------------------------------------------------

function spark() {
  const svg = drawn("svg", {class: "spark", viewBox: "0 0 100 26", preserveAspectRatio: "none", role: "img"});
  svg.append(drawn("path", {class: "area"}), drawn("path", {class: "line"}));
  return svg;
}

function plot(svg, points, label, text) {  // points: [at, value or null]
  const shown = points.filter(point => point[1] !== null), most = Math.max(...shown.map(point => point[1]), 1e-9);
  let line = "", area = "";
  if (shown.length > 1) {
    const from = shown[0][0], span = shown.at(-1)[0] - from || 1;
    const places = shown.map(([at, value]) => `${(100 * (at - from) / span).toFixed(1)},${(25 - 23 * value / most).toFixed(1)}`);
    line = `M${places.join(" L")}`; area = `${line} L100,26 L0,26 z`;
  }
  attribute(svg.firstChild, "d", area); attribute(svg.lastChild, "d", line);
  attribute(svg, "aria-label", shown.length ? `${label} over time: now ${text(shown.at(-1)[1])}, at most ${text(most < 1e-6 ? 0 : most)}` : `${label}: unknown`);
}

const rates = points => points.slice(1).map(([at, value], i) => [at, Math.max(0, (value - points[i][1]) / (at - points[i][0] || 1))]);

function measure(name) {
  const found = make("span", undefined, "measure"), picture = spark(), value = make("output");
  value.setAttribute("aria-live", "off"); found.append(name, picture, value);
  return {node: found, set(points, text) { plot(picture, points, name, text); const last = points.at(-1); write(value, last && last[1] !== null ? text(last[1]) : "–"); found.hidden = !points.some(point => point[1] !== null); }};
}

function skew(parts, place) {
  const all = sum(parts, place);
  return parts.length > 1 && all > 0 ? Math.max(...parts.map(part => part[place])) * parts.length / all : 1;
}

function bars(cell, parts, workers) {
  if (!cell.box) { cell.box = make("span", undefined, "bars"); cell.box.setAttribute("role", "img"); cell.note = make("span"); cell.append(cell.box, " ", cell.note); }
  const most = Math.max(...parts.map(part => part[1]), 1e-9), uneven = skew(parts, 1), notable = uneven >= SKEWED && sum(parts, 1) > NOTABLE;
  while (cell.box.children.length > parts.length) cell.box.lastChild.remove();
  parts.forEach((part, i) => {
    const bar = cell.box.children[i] || cell.box.appendChild(make("i")), height = `${Math.round(100 * part[1] / most)}%`;
    if (bar.style.height !== height) bar.style.height = height;
    bar.className = notable && part[1] === most ? "most" : "";
  });
  const says = `time by worker: ${parts.slice(0, 16).map((part, i) => `${workers[i].worker}: ${seconds(part[1])}`).join(", ")}; at most ${uneven.toFixed(1)} times the mean, records ${skew(parts, 2).toFixed(1)} times`;
  attribute(cell.box, "aria-label", says); attribute(cell, "title", says);
  write(cell.note, notable ? `${uneven.toFixed(1)}×` : ""); cell.note.className = notable ? "trouble" : "";
}

function heat(cell, share, known) {
  write(cell, known ? percent(share) : "");
  const heats = `${Math.round(45 * Math.sqrt(share))}%`;
  if (cell.style.getPropertyValue("--heat") !== heats) cell.style.setProperty("--heat", heats);
}

// -- tables --------------------------------------------------------------------------------------------------------------

function table(caption, columns, sorted, onsort) {
  const found = make("table"), head = found.createTHead().insertRow(), box = make("div", undefined, "wide");
  found.append(make("caption", caption, "hidden-text"));
  for (const [name, kind, key] of columns) {
    const th = make("th", undefined, kind || ""); th.scope = "col";
    if (key) {
      const button = make("button", name); button.type = "button"; th.append(button); th.dataset.key = key;
      button.onclick = () => { onsort(key); for (const each of head.cells) each.removeAttribute("aria-sort"); th.setAttribute("aria-sort", key === "path" ? "ascending" : "descending"); };
      if (key === sorted) th.setAttribute("aria-sort", key === "path" ? "ascending" : "descending");
    } else th.textContent = name;
    head.append(th);
  }
  box.tabIndex = 0; box.setAttribute("role", "region"); box.setAttribute("aria-label", caption); box.append(found);
  return {box, body: found.createTBody(), columns};
}

function row(columns) {
  const line = make("tr");
  for (const [, kind] of columns) line.append(make("td", undefined, kind || ""));
  return line;
}

const WORKERS = [["worker"], ["process", "less"], ["memory", "number"], ["busy", "number busy"], ["in operators", "number less"], ["waited", "number less"], ["progress sent", "number least"], ["received", "number least"], ["slowest operator", "less"], ["now"]];
const OPERATORS = [["operator", "name", "path"], ["busy", "number busy", "busy"], ["time", "number less", "time"], ["by worker", ""], ["read per s", "number", "rate"], ["read", "number less", "read"], ["sent", "number less", "sent"], ["runs", "number less", "runs"], ["frontier", "times"], ["holds", "times less"], ["unread", "times"], ["state", "times"]];

function slowest(run, place) {
  let found = ["", 0];
  for (const flow of run.dataflows) for (const each of flow.operators) if (each.by_worker[place][1] > found[1]) found = [each.path, each.by_worker[place][1]];
  return found[0] ? `${found[0]} (${seconds(found[1])})` : "";
}

function doing(w) {
  if (w.over) return ["over", "faint"];
  if (w.silent > SILENT) return [`no news for ${w.silent.toFixed(0)} s`, "trouble"];
  if (w.running.length) return [`in ${w.running.join(" in ")}`, w.still > STILL ? "trouble" : ""];
  return w.still > STILL ? [`nothing has moved for ${w.still.toFixed(0)} s`, "trouble"] : ["", ""];
}

function workers(view, run, history) {
  const hosts = new Set(run.workers.map(w => w.host)).size > 1, rows = keyed(view.workers.body);
  run.workers.forEach((w, i) => {
    const {nodes: [line], sparks} = rows.get(w.worker, () => {
      const line = row(WORKERS), sparks = [spark(), spark()];
      [2, 3].forEach((place, i) => line.cells[place].append(make("span"), sparks[i]));
      return {nodes: [line], sparks};
    });
    const cells = line.cells, all = run.dataflows.flatMap(flow => flow.operators.map(each => each.by_worker[i])), own = history.filter(each => each.workers[w.worker]);
    const memory = own.map(each => [each.at, each.workers[w.worker][0]]), busy = rates(own.map(each => [each.at, each.workers[w.worker][1]])).map(([at, share]) => [at, bounded(share)]);
    write(cells[0], String(w.worker)); write(cells[1], (hosts ? w.host + ", " : "") + w.process);
    write(cells[2].firstChild, megabytes(w.memory)); plot(sparks[0], memory, "memory", megabytes);
    const share = busy.length && !w.over ? busy.at(-1)[1] : 0;
    write(cells[3].firstChild, busy.length && !w.over ? percent(share) : ""); cells[3].style.setProperty("--heat", `${Math.round(45 * Math.sqrt(share))}%`);
    plot(sparks[1], busy, "busy", percent);
    write(cells[4], seconds(sum(all, 1))); write(cells[5], seconds(w.waited)); write(cells[6], count(w.progress_sent)); write(cells[7], count(w.progress_received));
    write(cells[8], slowest(run, i));
    const [text, kind] = doing(w); write(cells[9], text); cells[9].className = kind;
  });
  rows.end();
}

// What each operator did lately, of a dataflow that is over in all: [busy share, records read per second or null, skew].
function lately(run, flow, key) {
  const old = past.length > 1 && !flow.over ? past.find(each => each.operators.has(key)) : undefined, whole = flow.operators.reduce((all, each) => all + sum(each.by_worker, 1), 0);
  const found = new Map();
  for (const each of flow.operators) {
    const time = sum(each.by_worker, 1), read = sum(each.by_worker, 2), before = old && old.operators.get(key).get(each.path), span = before ? latest.at - old.at : 0;
    const share = span > 0 ? (time - before[0]) / span / run.workers.length : flow.over || saved ? time / (whole || 1) : 0;
    found.set(each.path, {...each, time, read, sent: sum(each.by_worker, 3), runs: sum(each.by_worker, 0), known: span > 0 || flow.over || Boolean(saved), busy: bounded(share), rate: span > 0 ? Math.max(0, (read - before[1]) / span) : null});
  }
  return found;
}

const short = (path, flow) => path.slice(flow.length + 1);

function operators(view, run, flow, now) {
  const many = run.workers.length > 1, rows = keyed(view.table.body), key = view.sorted;
  view.many = many;
  const order = [...now.values()].sort((a, b) => key === "path" ? a.path.localeCompare(b.path, "en", {numeric: true}) : (b[key] || 0) - (a[key] || 0) || b.time - a.time);
  for (const each of order) {
    const entry = rows.get(each.path, () => {
      const line = row(OPERATORS), button = make("button", short(each.path, flow.path), "name"); button.type = "button";
      line.className = "operator"; line.dataset.path = each.path; line.cells[0].append(button); line.cells[0].title = each.path + (each.built_at ? "\nbuilt at " + each.built_at : "");
      const made = {nodes: [line], button, line};
      button.onclick = () => { if (view.drawing) view.drawing.show(each.path); if (view.many) { if (!view.opened.delete(each.path)) view.opened.add(each.path); kept.set(`opened ${view.key}`, [...view.opened]); show(latest); } };
      return made;
    });
    const cells = entry.line.cells, opened = view.opened.has(each.path);
    if (many) attribute(entry.button, "aria-expanded", String(opened));
    heat(cells[1], each.busy, each.known); write(cells[2], seconds(each.time));
    if (many) bars(cells[3], each.by_worker, run.workers);
    write(cells[4], each.rate === null ? "" : brief(each.rate)); write(cells[5], count(each.read)); write(cells[6], count(each.sent)); write(cells[7], count(each.runs));
    const frontier = each.frontiers.map(f => f === null ? "?" : f.length ? f.join(", ") : "complete").join("; ");
    write(cells[8], frontier); cells[8].classList.toggle("faint", frontier === "complete");
    write(cells[9], few(each.held)); write(cells[10], each.waiting.length ? `${count(sum(each.waiting, 1))} at ${few(each.waiting.map(([time]) => [time, 1]))}` : ""); cells[10].classList.toggle("trouble", each.waiting.length > 0);
    const texts = each.described.flat(); write(cells[11], texts.slice(0, 4).join("; ") + (texts.length > 4 ? ` and ${texts.length - 4} more` : ""));
    while (entry.nodes.length > (opened ? 1 + run.workers.length : 1)) entry.nodes.pop().remove();
    if (opened) each.by_worker.forEach((part, i) => {
      if (!entry.nodes[i + 1]) { const under = row(OPERATORS); under.className = "part"; entry.nodes.push(under); }
      const under = entry.nodes[i + 1].cells;
      [[0, `worker ${run.workers[i].worker}`], [2, seconds(part[1])], [5, count(part[2])], [6, count(part[3])], [7, count(part[0])], [11, each.described[i].join("; ")]].forEach(([place, text]) => write(under[place], text));
    });
    const hidden = !view.matches(each.path);
    for (const node of entry.nodes) node.hidden = hidden;
  }
  rows.end();
  view.table.box.classList.toggle("one", !many);
}

// -- the drawing ---------------------------------------------------------------------------------------------------------

function draw(view, flow) {
  if (view.shown === flow.drawing) return;
  view.shown = flow.drawing; view.left.replaceChildren();
  if (!flow.svg) { view.drawing = null; view.left.append(make("p", flow.operators.length ? "too large to be drawn, or not reported yet" : "not reported yet", "faint")); return; }
  view.left.innerHTML = flow.svg;
  view.drawing = new Drawing(view.left.firstElementChild, view.key);
  view.drawing.onsearch = matches => { view.matches = matches; for (const line of view.table.body.rows) if (line.dataset.path) line.hidden = !matches(line.dataset.path); };
  view.drawing.onpick = path => { const line = [...view.table.body.rows].find(each => each.dataset.path === path); if (line) { line.scrollIntoView({block: "nearest"}); line.querySelector("button").focus(); } };
  view.drawing.mark();
}

function paint(view, run, flow, now) {
  if (!view.drawing) return;
  const running = new Set(run.workers.flatMap(w => w.over ? [] : w.running)), values = new Map();
  for (const [path, each] of now) {
    const uneven = sum(each.by_worker, 1) > NOTABLE ? skew(each.by_worker, 1) : 1, unread = sum(each.waiting, 1), parts = [];
    if (each.known && each.busy >= .005) parts.push(percent(each.busy));
    if (each.rate) parts.push(`${brief(each.rate)}/s`); else if (flow.over || saved) parts.push(`${brief(each.read || each.sent)} records`);
    if (uneven >= 2) parts.push(`skew ${uneven.toFixed(1)}×`);
    if (unread) parts.push(`${brief(unread)} unread`);
    else if (each.held.length) parts.push(`holds ${each.held[0][0]}`);
    let text = parts.shift() || "";
    for (const part of parts) if (text.length + part.length < 27) text += ` · ${part}`;
    const frontier = each.frontiers.map(f => f === null ? "?" : f.length ? f.join(", ") : "complete").join("; ");
    values.set(path, {text: text.slice(0, 30), heat: each.busy, busy: each.held.length > 0 || unread > 0, running: running.has(path), hover: (frontier ? `\nfrontier ${frontier}` : "") + each.described.flat().slice(0, 4).map(line => "\n" + line).join("")});
  }
  view.drawing.paint(values);
  const old = past.length > 1 && !flow.over ? past.find(each => each.edges.has(view.key)) : undefined, span = old ? latest.at - old.at : 0, known = [];
  for (const [scope, counts] of Object.entries(flow.edges)) known.push([scope, counts.map((records, i) => [records, span > 0 ? Math.max(0, (records - ((old.edges.get(view.key)[scope] || [])[i] || 0)) / span) : 0])]);
  const most = Math.max(1, ...known.flatMap(([, wires]) => wires.map(([records, rate]) => span > 0 ? rate : records)));
  view.drawing.flows(new Map(known.map(([scope, wires]) => [scope, wires.map(([records, rate]) => span > 0
    ? [rate ? `${brief(rate)}/s` : "", rate / most, `${brief(rate)} records per second, ${count(records)} in all`]
    : [flow.over && records ? brief(records) : "", records / most, `${count(records)} records in all`])])));
}

function dataflow(parent, run, flow, key, history) {
  const view = parent.get(key, () => {
    const node = make("details", undefined, "card flow"), head = make("summary"), both = make("div", undefined, "both"), left = make("section"), right = make("section"), title = make("h2", flow.path), note = make("small"), stuck = make("div");
    const measures = [measure("records read per s"), measure("frontier lag, epochs"), measure("unread records")];
    node.open = kept.get(`open ${key}`, true); node.ontoggle = () => kept.set(`open ${key}`, node.open);
    left.setAttribute("aria-label", `drawing of ${flow.path}`); right.setAttribute("aria-label", `operators of ${flow.path}`); stuck.setAttribute("role", "status");
    head.append(title, note, ...measures.map(each => each.node)); node.append(head, stuck, both);
    const made = {nodes: [node], node, key, note, measures, left, stuck, opened: new Set(kept.get(`opened ${key}`, [])), sorted: kept.get(`sorted ${key}`, "time"), matches: () => true, shown: undefined, drawing: null};
    made.table = table(`operators of ${flow.path}`, OPERATORS, made.sorted, sorted => { made.sorted = sorted; kept.set(`sorted ${key}`, sorted); show(latest); });
    right.append(made.table.box); both.append(left, right);
    return made;
  });
  if (!view.node.isConnected) by("main").append(view.node);  // a drawing is measured when it is made
  write(view.note, flow.over ? "over" : "");
  const own = history.filter(each => each.dataflows[flow.number]);
  view.measures[0].set(rates(own.map(each => [each.at, each.dataflows[flow.number][0]])), brief);
  [1, 2].forEach(place => view.measures[place].set(own.map(each => [each.at, each.dataflows[flow.number][place]]), brief));
  const says = keyed(view.stuck);
  for (const stuck of flow.stuck) {
    const text = `nothing moves, as worker ${stuck.workers.slice(0, 8).join(", ")}${stuck.workers.length > 8 ? ", …" : ""} says:\n${stuck.words}`;
    says.get(text, () => ({nodes: [make("pre", text)]}));
  }
  says.end();
  const now = lately(run, flow, key);
  draw(view, flow); paint(view, run, flow, now); operators(view, run, flow, now);
}

function show(state) {
  const parent = keyed(by("main"));
  by("none").hidden = state.runs.length > 0;
  parent.get("none", () => ({nodes: [by("none")]}));
  for (const run of state.runs) {
    const many = run.workers.length, history = samples.get(run.key) || [];
    const view = parent.get(run.key, () => { const title = make("h1"), card = make("section", undefined, "card"), workers = table("workers", WORKERS); card.append(workers.box); return {nodes: [title, card], title, workers}; });
    write(view.title, `${run.name || (state.runs.length > 1 ? "workers of this machine" : "run")}${run.name ? " on Spark" : ""} · ${many} worker${many > 1 ? "s" : ""} · ${megabytes(run.memory)}`);
    workers(view, run, history);
    for (const flow of run.dataflows) dataflow(parent, run, flow, `${run.key} ${flow.number}`, history);
  }
  parent.end();
  const all = state.runs.flatMap(run => run.workers), busy = all.filter(w => !w.over).length;
  if (!gone) write(by("summary"), `${saved ? `report of ${new Date(saved.saved_at).toLocaleString("en")} · ` : ""}up ${state.at.toFixed(0)} s · ${busy} of ${all.length} worker${all.length === 1 ? "" : "s"} at work · this process has ${megabytes(state.memory)}`);
}

// -- the state -----------------------------------------------------------------------------------------------------------

function receive(state) {
  if (latest && state.at < latest.at) { samples.clear(); past.length = 0; }  // another run at the same address
  latest = state;
  const times = {at: state.at, operators: new Map(), edges: new Map()};
  for (const run of state.runs) {
    const known = samples.get(run.key) || [], last = known.length ? known.at(-1).at : -1;
    known.push(...run.samples.filter(each => each.at > last));
    samples.set(run.key, known.length > KEPT ? known.filter((_, i) => i % 2 === 0 || i === known.length - 1) : known);
    for (const flow of run.dataflows) {
      const key = `${run.key} ${flow.number}`;
      if (flow.svg) drawings.set(flow.drawing, flow.svg); else if (flow.drawing) flow.svg = drawings.get(flow.drawing) || null;
      times.operators.set(key, new Map(flow.operators.map(each => [each.path, [sum(each.by_worker, 1), sum(each.by_worker, 2)]]))); times.edges.set(key, flow.edges);
    }
  }
  const runs = new Set(state.runs.map(run => run.key)), shown = new Set(state.runs.flatMap(run => run.dataflows.map(flow => flow.drawing)));
  for (const key of samples.keys()) if (!runs.has(key)) samples.delete(key);
  for (const key of drawings.keys()) if (!shown.has(key)) drawings.delete(key);
  past.push(times);
  while (past.length > 2 && state.at - past[1].at >= WINDOW) past.shift();
  show(state);
}

const newest = () => Math.max(-1, ...[...samples.values()].map(each => each.length ? each.at(-1).at : -1));

async function poll() {
  let cost = 0;
  if (!paused) {
    const answer = await fetch("state.json" + location.search, {cache: "no-store", headers: {"Timely-Drawn": [...drawings.keys()].join(" "), "Timely-Since": String(newest())}}).catch(() => null);
    const state = answer && answer.ok ? await answer.json().catch(() => null) : null;
    gone = !answer;
    if (state) {
      const begun = performance.now();
      receive(state); document.body.dataset.polled = "yes";
      cost = Math.max(1000 * state.cost, performance.now() - begun);
    }
    else if (gone) write(by("summary"), "the run is over, or cannot be reached: save the report to keep what is here");
  }
  setTimeout(poll, Math.max(1000, 10 * cost));  // what takes long to be looked at is looked at less often
}

by("pause").onclick = event => { paused = !paused; kept.set("paused", paused); event.target.textContent = paused ? "go on" : "pause"; event.target.setAttribute("aria-pressed", String(paused)); };
by("save").onclick = () => {
  if (!latest) return;
  const state = {...latest, saved_at: new Date().toISOString(), runs: latest.runs.map(run => ({...run, samples: samples.get(run.key) || []}))};
  const text = SOURCE.replace('id="saved">null<', () => `id="saved">${JSON.stringify(state).replaceAll("<", "\\u003c")}<`);
  const link = make("a"); link.href = URL.createObjectURL(new Blob([text], {type: "text/html"})); link.download = "timely-report.html"; link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
const theme = by("theme"), dress = () => { if (theme.value) document.documentElement.dataset.theme = theme.value; else delete document.documentElement.dataset.theme; };
theme.value = kept.get("theme", ""); dress();
theme.onchange = () => { kept.set("theme", theme.value); dress(); };
if (saved) { for (const name of ["pause", "save"]) by(name).hidden = true; document.body.dataset.polled = "yes"; receive(saved); } else poll();
