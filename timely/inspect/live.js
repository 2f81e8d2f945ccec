// The live page, as a function of its state: Preact changes what differs, so that focus, selections, places and open rows stay.
const SOURCE = "<!doctype html>\n" + document.documentElement.outerHTML;  // before anything is added: a saved report is this page with its state
const SILENT = 3, STILL = 5, WINDOW = 5, SKEWED = 1.5, NOTABLE = .05;
const saved = JSON.parse(document.getElementById("saved").textContent);
const count = n => n.toLocaleString("en"), counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`, percent = n => `${Math.round(100 * n)} %`;
const sum = (of, at) => of.reduce((all, one) => all + one[at], 0), bounded = n => Math.max(0, Math.min(1, n));
const megabytes = n => `${count(Math.round(n / 1048576))} MB`;
const seconds = n => `${n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : count(Math.round(n))} s`;
const compact = new Intl.NumberFormat("en", {notation: "compact", maximumSignificantDigits: 3}), brief = n => compact.format(n);
const warmth = share => `${Math.round(45 * Math.sqrt(share))}%`, warm = share => `--heat: ${warmth(share)}`;
// Texts change in their own nodes: what is selected stays so.
const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const drawings = new Map(), past = [];
let paused = false, latest = null, gone = false;

// The first of several times, and how many there are beside it; a report says of many how many it leaves out.
function first(times) {
  if (times.length < 2) return times.join("");
  const left = times.at(-1).match(/^… (\d+) more$/);
  return `${times[0]} … ${times.length - 1 + (left ? left[1] - 1 : 0)} more`;
}
const frontier = (each, show) => each.frontiers.map(times => times === null ? "?" : times.length ? show(times) : "complete").join("; ");

// -- small pictures ------------------------------------------------------------------------------------------------------

function Spark({label, points, text}) {  // points: [at, value or null]
  const known = points.filter(([, value]) => value !== null), most = Math.max(...known.map(([, value]) => value), 1e-9);
  const from = known[0]?.[0], span = known.at(-1)?.[0] - from;
  const line = !span ? "" : "M" + known.map(([at, value]) => `${(100 * (at - from) / span).toFixed(1)},${(25 - 23 * value / most).toFixed(1)}`).join(" L");
  const says = known.length ? `${label} over time: now ${text(known.at(-1)[1])}, at most ${text(most < 1e-6 ? 0 : most)}` : `${label}: unknown`;
  return html`<svg class="spark" viewBox="0 0 100 26" preserveAspectRatio="none" role="img" aria-label=${says}>
    <path class="area" d=${line && `${line} L100,26 L0,26 z`} /><path class="line" d=${line} /></svg>`;
}

const rates = points => points.slice(1).map(([at, value], i) => [at, Math.max(0, (value - points[i][1]) / (at - points[i][0] || 1))]);

function Measure({label, points}) {
  const last = points.at(-1)?.[1] ?? null;
  return html`<span class="measure" hidden=${!points.some(([, value]) => value !== null)}>${label}
    <${Spark} label=${label} points=${points} text=${brief} /><output aria-live="off">${last === null ? "–" : brief(last)}</output></span>`;
}

function skew(parts, place) {
  const all = sum(parts, place);
  return parts.length > 1 && all > 0 ? Math.max(...parts.map(part => part[place])) * parts.length / all : 1;
}

function Bars({parts, workers}) {
  const most = Math.max(...parts.map(part => part[1]), 1e-9), uneven = skew(parts, 1), notable = uneven >= SKEWED && sum(parts, 1) > NOTABLE;
  const says = `time by worker: ${parts.slice(0, 16).map((part, i) => `${workers[i].worker}: ${seconds(part[1])}`).join(", ")}; at most ${uneven.toFixed(1)} times the mean, records ${skew(parts, 2).toFixed(1)} times`;
  return html`<span class="bars" role="img" aria-label=${says} title=${says}>${parts.map(part => html`<i class=${notable && part[1] === most ? "most" : ""} style=${`height: ${Math.round(100 * part[1] / most)}%`} />`)}</span>
    ${notable && html` <span class="trouble">${uneven.toFixed(1)}×</span>`}`;
}

// -- tables: a column is [title, class, key that it sorts by] ------------------------------------------------------------

function Table({caption, columns, sorted, onsort, children}) {
  const order = key => key !== sorted ? undefined : key === "path" ? "ascending" : "descending";
  return html`<div class="wide" tabindex="0" role="region" aria-label=${caption}><table><caption class="hidden-text">${caption}</caption>
    <thead><tr>${columns.map(([title, kind, key]) => html`<th scope="col" class=${kind} aria-sort=${key && order(key)}>${key ? html`<button type="button" onclick=${() => onsort(key)}>${title}</button>` : title}</th>`)}</tr></thead>
    <tbody>${children}</tbody></table></div>`;
}

// A line of cells: texts, or objects of the cell's attributes and what is in it.
function Row({columns, cells, ...others}) {
  return html`<tr ...${others}>${columns.map(([, kind], i) => {
    const {content, kind: more = "", ...attributes} = cells[i]?.content === undefined ? {content: cells[i]} : cells[i];
    return html`<td class=${`${kind} ${more}`} title=${typeof content === "string" ? content : undefined} ...${attributes}>${content}</td>`;
  })}</tr>`;
}

const WORKERS = [["worker", ""], ["process", "less"], ["memory", "number"], ["busy", "number busy"], ["in operators", "number less"], ["waited", "number less"], ["progress sent", "number least"], ["received", "number least"], ["slowest operator", "less"], ["now", ""]];
const OPERATORS = [["operator", "name", "path"], ["busy", "number busy", "busy"], ["time", "number less", "time"], ["by worker", ""], ["read per s", "number", "rate"], ["read", "number less", "read"], ["sent", "number less", "sent"], ["runs", "number less", "runs"], ["frontier", "times"], ["holds", "times less"], ["unread", "times"], ["state", "times"]];

function slowest(run, place) {
  const all = run.dataflows.flatMap(flow => flow.operators.map(each => [each.path, each.by_worker[place][1]])), most = all.reduce((one, other) => other[1] > one[1] ? other : one, ["", 0]);
  return most[0] && `${most[0]} (${seconds(most[1])})`;
}

function doing(w) {
  if (w.over) return {content: "over", kind: "faint"};
  if (w.silent > SILENT) return {content: `no news for ${w.silent.toFixed(0)} s`, kind: "trouble"};
  if (w.running.length) return {content: `in ${w.running.join(" in ")}`, kind: w.still > STILL ? "trouble" : ""};
  return w.still > STILL ? {content: `nothing has moved for ${w.still.toFixed(0)} s`, kind: "trouble"} : "";
}

function Workers({run, history}) {
  const hosts = new Set(run.workers.map(w => w.host)).size > 1;
  return html`<${Table} caption="workers" columns=${WORKERS}>${run.workers.map((w, i) => {
    const all = run.dataflows.flatMap(flow => flow.operators.map(each => each.by_worker[i])), own = history.filter(each => each.workers[w.worker]);
    const memory = own.map(each => [each.at, each.workers[w.worker][0]]), busy = rates(own.map(each => [each.at, each.workers[w.worker][1]])).map(([at, share]) => [at, bounded(share)]);
    const share = busy.length && !w.over ? busy.at(-1)[1] : null;
    return html`<${Row} key=${w.worker} columns=${WORKERS} cells=${[
      w.worker, (hosts ? w.host + ", " : "") + w.process,
      html`${megabytes(w.memory)}<${Spark} label="memory" points=${memory} text=${megabytes} />`,
      {content: html`${share === null ? "" : percent(share)}<${Spark} label="busy" points=${busy} text=${percent} />`, style: warm(share ?? 0)},
      seconds(sum(all, 1)), seconds(w.waited), count(w.progress_sent), count(w.progress_received), slowest(run, i), doing(w),
    ]} />`;
  })}<//>`;
}

// A dataflow as it was some seconds ago, and how many; one that is over has no lately.
function earlier(run, flow) {
  for (const {at, runs} of flow.over ? [] : past) {
    const old = runs.find(each => each.key === run.key)?.dataflows.find(each => each.number === flow.number);
    if (old && latest.at > at) return {old, span: latest.at - at};
  }
  return {span: 0};
}

// What each operator did lately, of a dataflow that is over in all: busy share, records read per second or null.
function lately(run, flow) {
  const {old, span} = earlier(run, flow), before = new Map(old?.operators.map(each => [each.path, each.by_worker])), whole = flow.operators.reduce((all, each) => all + sum(each.by_worker, 1), 0);
  return flow.operators.map(each => {
    const [runs, time, read, sent] = [0, 1, 2, 3].map(place => sum(each.by_worker, place)), then = before.get(each.path);
    const share = then ? (time - sum(then, 1)) / span / run.workers.length : flow.over || saved ? time / (whole || 1) : 0;
    return {...each, runs, time, read, sent, unread: sum(each.waiting, 1), known: Boolean(then || flow.over || saved), busy: bounded(share), rate: then ? Math.max(0, (read - sum(then, 2)) / span) : null};
  });
}

function Operators({run, flow, now, matches, onpick}) {
  const [sorted, sort] = useState("time"), [opened, open] = useState([]), many = run.workers.length > 1;
  const order = now.filter(each => matches(each.path)).sort((a, b) => sorted === "path" ? a.path.localeCompare(b.path, "en", {numeric: true}) : (b[sorted] || 0) - (a[sorted] || 0) || b.time - a.time);
  const whole = times => times.map(([time, n]) => n > 1 && !time.startsWith("…") ? `${time} ×${count(n)}` : time);
  const line = each => {
    const isOpen = opened.includes(each.path), times = frontier(each, all => all.join(", ")), waiting = whole(each.waiting.map(([time]) => [time, 1]));
    const pick = () => { onpick(each.path); if (many) open(isOpen ? opened.filter(path => path !== each.path) : [...opened, each.path]); };
    return html`<${Row} key=${each.path} columns=${OPERATORS} class="operator" data-path=${each.path} cells=${[
      {content: html`<button type="button" class="name" aria-expanded=${many ? String(isOpen) : undefined} onclick=${pick}>${each.path.slice(flow.path.length + 1)}</button>`, title: each.path + (each.built_at ? "\nbuilt at " + each.built_at : "")},
      {content: each.known ? percent(each.busy) : "", style: warm(each.busy)}, seconds(each.time),
      many && html`<${Bars} parts=${each.by_worker} workers=${run.workers} />`,
      each.rate === null ? "" : brief(each.rate), count(each.read), count(each.sent), count(each.runs),
      {content: frontier(each, first), title: times, kind: times === "complete" ? "faint" : ""},
      {content: first(whole(each.held)), title: whole(each.held).join(", ")},
      {content: each.waiting.length ? `${count(each.unread)} at ${first(waiting)}` : "", title: waiting.join(", "), kind: each.waiting.length ? "trouble" : ""},
      each.described.flat().join("; "),
    ]} />${isOpen && each.by_worker.map((part, i) => html`<${Row} key=${`${each.path} ${i}`} columns=${OPERATORS} class="part" cells=${[
      `worker ${run.workers[i].worker}`, "", seconds(part[1]), `${seconds(part[1])}, ${count(part[2])} read`, "", count(part[2]), count(part[3]), count(part[0]), "", "", "", each.described[i].join("; "),
    ]} />`)}`;
  };
  return html`<${Table} caption=${`operators of ${flow.path}`} columns=${OPERATORS} sorted=${sorted} onsort=${sort}>${order.map(line).flat(2)}<//>`;
}

// -- the drawing ---------------------------------------------------------------------------------------------------------

// What is written into the box of an operator, as much as it has room for.
function shortly(each, flow) {
  const uneven = sum(each.by_worker, 1) > NOTABLE ? skew(each.by_worker, 1) : 1, records = each.read || each.sent;
  const parts = [
    each.known && each.busy >= .005 && percent(each.busy), each.rate ? `${brief(each.rate)}/s` : (flow.over || saved) && `${brief(records)} record${records === 1 ? "" : "s"}`,
    uneven >= 2 && `skew ${uneven.toFixed(1)}×`, each.unread ? `${brief(each.unread)} unread` : each.held.length > 0 && `holds ${each.held[0][0]}`,
  ];
  return parts.filter(Boolean).reduce((line, part) => !line ? part : line.length + part.length < 27 ? `${line} · ${part}` : line, "").slice(0, 30);
}

function paint(canvas, run, flow, now) {
  const running = new Set(run.workers.flatMap(w => w.over ? [] : w.running)), operators = new Map(now.map(each => [each.path, each]));
  for (const box of canvas.querySelectorAll("g.operator, g.source, g.shut")) {
    const {path} = box.dataset, own = operators.get(path), inside = own ? [own] : now.filter(each => each.path.startsWith(path + "/")), [title] = box.children;
    if (own) write(box.querySelector(".live"), shortly(own, flow));
    box.dataset.title ??= title.textContent;
    write(title, box.dataset.title + (own?.frontiers.length ? `\nfrontier ${frontier(own, all => all.join(", "))}` : "") + inside.flatMap(each => each.described.flat()).slice(0, 4).map(line => "\n" + line).join(""));
    box.style.setProperty("--heat", warmth(Math.max(0, ...inside.map(each => each.busy))));
    box.classList.toggle("busy", inside.some(each => each.held.length > 0 || each.unread > 0)); box.classList.toggle("running", inside.some(each => running.has(each.path)));
  }
  const {old, span} = earlier(run, flow), lately = (scope, wire) => span > 0 ? Math.max(0, flow.edges[scope][wire] - (old.edges[scope]?.[wire] ?? 0)) / span : flow.edges[scope][wire];
  const most = Math.max(1, ...Object.entries(flow.edges).flatMap(([scope, wires]) => wires.map((_, wire) => lately(scope, wire))));
  for (const label of canvas.querySelectorAll(".rate")) {
    const scope = label.parentNode.dataset.path, {wire} = label.dataset, stream = label.previousElementSibling;
    if (flow.edges[scope]?.[wire] === undefined) continue;
    const records = flow.edges[scope][wire], share = lately(scope, wire);
    write(label, !share || (span === 0 && !flow.over) ? "" : span > 0 ? `${brief(share)}/s` : brief(share));
    write(stream.firstChild, `${span > 0 ? `${brief(share)} records per second, ` : ""}${count(records)} records in all`);
    stream.style.setProperty("--load", (1.3 + 2.7 * share / most).toFixed(1));
  }
}

function Flow({run, flow, history}) {
  const [open, setOpen] = useState(true), [search, onsearch] = useState(""), [picked, pick] = useState(null), now = lately(run, flow), svgs = drawings.get(flow.drawing);
  const own = history.filter(each => each.dataflows[flow.number]).map(each => [each.at, ...each.dataflows[flow.number]]), series = place => own.map(each => [each[0], each[place]]);
  const row = path => document.querySelector(`tr[data-path=${CSS.escape(path)}] button`)?.focus();
  return html`<details class="card flow" open=${open} ontoggle=${event => setOpen(event.target.open)}>
    <summary><h2>${flow.path} <small>${flow.times && `(time: ${flow.times})`}${flow.over && " over"}</small></h2>
      <${Measure} label="records read per s" points=${rates(series(1))} /><${Measure} label="frontier lag, epochs" points=${series(2)} /><${Measure} label="unread records" points=${series(3)} /></summary>
    <div role="status">${flow.stuck.map(stuck => html`<pre>nothing moves, as worker ${first(stuck.workers.map(String))} says:${"\n"}${stuck.words}</pre>`)}</div>
    ${open && html`<div class="both"><section>${svgs ? html`<${Drawing} drawings=${svgs} paths=${now.map(each => each.path)} ...${{search, onsearch, picked}} onpick=${row} paint=${canvas => paint(canvas, run, flow, now)} />` : html`<p class="faint">${flow.operators.length ? "too large to be drawn, or not reported yet" : "not reported yet"}</p>`}</section>
      <section><${Operators} ...${{run, flow, now}} matches=${finder(search)} onpick=${path => pick({path})} /></section></div>`}</details>`;
}

// -- the page ------------------------------------------------------------------------------------------------------------

function App({state}) {
  const all = state.runs.flatMap(run => run.workers), busy = all.filter(w => !w.over).length;
  const summary = gone ? "the run is over, or cannot be reached: save the report to keep what is here" : state.at === undefined ? "connecting"
    : `${saved ? `report of ${new Date(saved.saved_at).toLocaleString("en")} · ` : ""}up ${state.at.toFixed(0)} s · ${counted(busy, "worker")} busy${busy < all.length ? ` of ${all.length}` : ""} · this process has ${megabytes(state.memory)}`;
  return html`<a class="skip" href="#main">to the dataflows</a>
    <header><b>timely</b><span id="summary">${summary}</span><span class="buttons">
      ${!saved && html`<button type="button" aria-pressed=${String(paused)} onclick=${() => { paused = !paused; show(); }}>${paused ? "go on" : "pause"}</button><button type="button" onclick=${save}>save report</button>`}</span></header>
    <main id="main" tabindex="-1">${state.runs.length === 0 && html`<p class="faint">no worker has reported yet</p>`}${state.runs.map(run => {
      const history = run.samples, name = run.name ? `${run.name} on Spark` : state.runs.length > 1 ? "workers of this machine" : "run";
      return html`<h1 key=${run.key}>${name} · ${counted(run.workers.length, "worker")} · ${megabytes(run.memory)}</h1><section key=${`${run.key} workers`} class="card"><${Workers} run=${run} history=${history} /></section>
        ${run.dataflows.map(flow => html`<${Flow} key=${`${run.key} ${flow.number}`} ...${{run, flow, history}} />`)}`;
    }).flat(2)}</main>`;
}

const show = () => render(html`<${App} state=${latest || {runs: []}} />`, document.getElementById("page"));

function receive(state) {
  if (latest && state.at < latest.at) past.length = 0;  // another run at the same address
  latest = state;
  const flows = state.runs.flatMap(run => run.dataflows);
  for (const flow of flows) if (flow.drawings) drawings.set(flow.drawing, flow.drawings);
  for (const key of drawings.keys()) if (!flows.some(flow => flow.drawing === key)) drawings.delete(key);
  past.push(state);
  while (past.length > 2 && state.at - past[1].at >= WINDOW) past.shift();
  show(); document.body.dataset.polled = "yes";
}

async function poll() {
  let cost = 0;
  if (!paused) {
    const answer = await fetch("state.json" + location.search, {cache: "no-store", headers: {"Timely-Drawn": [...drawings.keys()].join(" ")}}).catch(() => null);
    const state = answer && answer.ok ? await answer.json().catch(() => null) : null, begun = performance.now();
    gone = !answer;
    if (state) { receive(state); cost = Math.max(1000 * state.cost, performance.now() - begun); } else show();
  }
  setTimeout(poll, Math.max(1000, 10 * cost));  // what takes long to be looked at is looked at less often
}

function save() {
  if (!latest) return;
  const runs = latest.runs.map(run => ({...run, dataflows: run.dataflows.map(flow => ({...flow, drawings: drawings.get(flow.drawing)}))}));
  const state = {...latest, runs, saved_at: new Date().toISOString()};
  const text = SOURCE.replace('id="saved">null<', () => `id="saved">${JSON.stringify(state).replaceAll("<", "\\u003c")}<`);
  const link = document.createElement("a"); link.href = URL.createObjectURL(new Blob([text], {type: "text/html"})); link.download = "timely-report.html"; link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

if (saved) receive(saved); else { show(); poll(); }
