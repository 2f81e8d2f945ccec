// The live page, as a function of its state: Preact changes what differs, so that focus, selections, places and open rows stay.
const {html, render, useState, useRef, useLayoutEffect} = htmPreact;
const SOURCE = "<!doctype html>\n" + document.documentElement.outerHTML;  // before anything is added: a saved report is this page with its state
const SILENT = 3, STILL = 5, WINDOW = 5, KEPT = 480, SKEWED = 1.5, NOTABLE = .05;
const saved = JSON.parse(document.getElementById("saved").textContent);
const count = n => n.toLocaleString("en"), counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`, percent = n => `${Math.round(100 * n)} %`;
const sum = (of, at) => of.reduce((all, one) => all + one[at], 0), bounded = n => Math.max(0, Math.min(1, n));
const megabytes = n => `${count(Math.round(n / 1048576))} MB`;
const seconds = n => `${n < 10 ? n.toFixed(2) : n < 100 ? n.toFixed(1) : count(Math.round(n))} s`;
const brief = n => n < 1000 ? `${n < 10 && n % 1 ? n.toFixed(1) : Math.round(n)}` : n < 1e6 ? `${(n / 1e3).toFixed(n < 1e4 ? 1 : 0)}k` : n < 1e9 ? `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)}M` : `${(n / 1e9).toFixed(1)}G`;
const warm = share => `--heat: ${Math.round(45 * Math.sqrt(share))}%`;
const drawings = new Map(), samples = new Map(), past = [];
let paused = false, latest = null, gone = false;

// The first of several times, and how many there are beside it; a report says of many how many it leaves out.
function first(times) {
  if (times.length < 2) return times.join("");
  const left = times.at(-1).match(/^… (\d+) more$/);
  return `${times[0]} … ${times.length - 1 + (left ? left[1] - 1 : 0)} more`;
}
const frontier = (each, show) => each.frontiers.map(times => times === null ? "?" : times.length ? show(times) : "complete").join("; ");

// What a session remembers under a name: as useState.
function useKept(name, initial) {
  const [value, set] = useState(() => kept.get(name, initial));
  return [value, next => { kept.set(name, next); set(next); }];
}

// -- small pictures ------------------------------------------------------------------------------------------------------

function Spark({label, points, text}) {  // points: [at, value or null]
  const known = points.filter(([, value]) => value !== null), most = Math.max(...known.map(([, value]) => value), 1e-9);
  const from = known[0]?.[0], span = known.at(-1)?.[0] - from || 1;
  const line = known.length < 2 ? "" : "M" + known.map(([at, value]) => `${(100 * (at - from) / span).toFixed(1)},${(25 - 23 * value / most).toFixed(1)}`).join(" L");
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

// What each operator did lately, of a dataflow that is over in all: busy share, records read per second or null.
function lately(run, flow, key) {
  const old = past.length > 1 && !flow.over ? past.find(each => each.operators.has(key)) : undefined, whole = flow.operators.reduce((all, each) => all + sum(each.by_worker, 1), 0);
  return flow.operators.map(each => {
    const time = sum(each.by_worker, 1), read = sum(each.by_worker, 2), before = old && old.operators.get(key).get(each.path), span = before ? latest.at - old.at : 0;
    const share = span > 0 ? (time - before[0]) / span / run.workers.length : flow.over || saved ? time / (whole || 1) : 0;
    return {...each, time, read, sent: sum(each.by_worker, 3), runs: sum(each.by_worker, 0), unread: sum(each.waiting, 1), known: span > 0 || flow.over || Boolean(saved), busy: bounded(share), rate: span > 0 ? Math.max(0, (read - before[1]) / span) : null};
  });
}

function Operators({run, flow, now, id, matches, onpick}) {
  const [sorted, sort] = useKept(`sorted ${id}`, "time"), [opened, open] = useKept(`opened ${id}`, []), many = run.workers.length > 1;
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
      `worker ${run.workers[i].worker}`, "", seconds(part[1]), "", "", count(part[2]), count(part[3]), count(part[0]), "", "", "", each.described[i].join("; "),
    ]} />`)}`;
  };
  return html`<${Table} caption=${`operators of ${flow.path}`} columns=${OPERATORS} sorted=${sorted} onsort=${sort}>${order.map(line).flat(2)}<//>`;
}

// -- the drawing ---------------------------------------------------------------------------------------------------------

function paint(drawing, run, flow, now, id) {
  const running = new Set(run.workers.flatMap(w => w.over ? [] : w.running));
  drawing.paint(new Map(now.map(each => {
    const uneven = sum(each.by_worker, 1) > NOTABLE ? skew(each.by_worker, 1) : 1, parts = [];
    if (each.known && each.busy >= .005) parts.push(percent(each.busy));
    if (each.rate) parts.push(`${brief(each.rate)}/s`); else if (flow.over || saved) parts.push(`${brief(each.read || each.sent)} record${(each.read || each.sent) === 1 ? "" : "s"}`);
    if (uneven >= 2) parts.push(`skew ${uneven.toFixed(1)}×`);
    if (each.unread) parts.push(`${brief(each.unread)} unread`);
    else if (each.held.length) parts.push(`holds ${each.held[0][0]}`);
    const text = parts.reduce((line, part) => !line ? part : line.length + part.length < 27 ? `${line} · ${part}` : line, ""), times = frontier(each, all => all.join(", "));
    const hover = (times && `\nfrontier ${times}`) + each.described.flat().slice(0, 4).map(line => "\n" + line).join("");
    return [each.path, {text: text.slice(0, 30), heat: each.busy, busy: each.held.length > 0 || each.unread > 0, running: running.has(each.path), hover}];
  })));
  const old = past.length > 1 && !flow.over ? past.find(each => each.edges.has(id)) : undefined, span = old ? latest.at - old.at : 0;
  const known = Object.entries(flow.edges).map(([scope, counts]) => [scope, counts.map((records, i) => [records, span > 0 ? Math.max(0, (records - ((old.edges.get(id)[scope] || [])[i] || 0)) / span) : 0])]);
  const most = Math.max(1, ...known.flatMap(([, wires]) => wires.map(([records, rate]) => span > 0 ? rate : records)));
  drawing.flows(new Map(known.map(([scope, wires]) => [scope, wires.map(([records, rate]) => span > 0
    ? [rate ? `${brief(rate)}/s` : "", rate / most, `${brief(rate)} records per second, ${count(records)} in all`]
    : [flow.over && records ? brief(records) : "", records / most, `${count(records)} records in all`])])));
}

// A drawing has nodes of its own, which Preact leaves alone.
function Picture({run, flow, now, id, onsearch, held}) {
  const place = useRef();
  useLayoutEffect(() => {
    place.current.innerHTML = flow.svg || "";
    held.current = flow.svg ? new Drawing(place.current.firstElementChild, id) : null;
    if (!held.current) return;
    held.current.onsearch = onsearch; held.current.mark();
    held.current.onpick = path => document.querySelector(`tr[data-path=${CSS.escape(path)}] button`)?.focus();
  }, [flow.drawing]);
  useLayoutEffect(() => { if (held.current) paint(held.current, run, flow, now, id); });
  return html`${!flow.svg && html`<p class="faint">${flow.operators.length ? "too large to be drawn, or not reported yet" : "not reported yet"}</p>`}<div ref=${place} />`;
}

function Flow({run, flow, id, history}) {
  const [open, setOpen] = useKept(`open ${id}`, true), [search, onsearch] = useState(() => () => true), held = useRef(null), now = lately(run, flow, id);
  const own = history.filter(each => each.dataflows[flow.number]).map(each => [each.at, ...each.dataflows[flow.number]]), series = place => own.map(each => [each[0], each[place]]);
  return html`<details class="card flow" open=${open} ontoggle=${event => setOpen(event.target.open)}>
    <summary><h2>${flow.path} <small>${flow.times && `(time: ${flow.times})`}${flow.over && " over"}</small></h2>
      <${Measure} label="records read per s" points=${rates(series(1))} /><${Measure} label="frontier lag, epochs" points=${series(2)} /><${Measure} label="unread records" points=${series(3)} /></summary>
    <div role="status">${flow.stuck.map(stuck => html`<pre>nothing moves, as worker ${first(stuck.workers.map(String))} says:${"\n"}${stuck.words}</pre>`)}</div>
    ${open && html`<div class="both"><section><${Picture} ...${{run, flow, now, id, held}} onsearch=${matches => onsearch(() => matches)} /></section>
      <section><${Operators} ...${{run, flow, now, id}} matches=${search} onpick=${path => held.current?.show(path)} /></section></div>`}</details>`;
}

// -- the page ------------------------------------------------------------------------------------------------------------

function App({state}) {
  const [theme, dress] = useKept("theme", ""), [still, hold] = useKept("paused", false);
  useLayoutEffect(() => { if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme; });
  paused = still;
  const all = state.runs.flatMap(run => run.workers), busy = all.filter(w => !w.over).length;
  const summary = gone ? "the run is over, or cannot be reached: save the report to keep what is here" : state.at === undefined ? "connecting"
    : `${saved ? `report of ${new Date(saved.saved_at).toLocaleString("en")} · ` : ""}up ${state.at.toFixed(0)} s · ${counted(busy, "worker")} busy${busy < all.length ? ` of ${all.length}` : ""} · this process has ${megabytes(state.memory)}`;
  return html`<a class="skip" href="#main">to the dataflows</a>
    <header><b>timely</b><span id="summary">${summary}</span><span class="buttons">
      ${!saved && html`<button type="button" aria-pressed=${String(still)} onclick=${() => hold(!still)}>${still ? "go on" : "pause"}</button><button type="button" onclick=${save}>save report</button>`}
      <label><span class="hidden-text">colours</span><select value=${theme} onchange=${event => dress(event.target.value)}><option value="">colours of the system</option><option>light</option><option>dark</option></select></label></span></header>
    <main id="main" tabindex="-1">${state.runs.length === 0 && html`<p class="faint">no worker has reported yet</p>`}${state.runs.map(run => {
      const history = samples.get(run.key) || [], name = run.name ? `${run.name} on Spark` : state.runs.length > 1 ? "workers of this machine" : "run";
      return html`<h1 key=${run.key}>${name} · ${counted(run.workers.length, "worker")} · ${megabytes(run.memory)}</h1><section key=${`${run.key} workers`} class="card"><${Workers} run=${run} history=${history} /></section>
        ${run.dataflows.map(flow => html`<${Flow} key=${`${run.key} ${flow.number}`} id=${`${run.key} ${flow.number}`} ...${{run, flow, history}} />`)}`;
    }).flat(2)}</main>`;
}

const show = () => render(html`<${App} state=${latest || {runs: []}} />`, document.getElementById("page"));

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
  show(); document.body.dataset.polled = "yes";
}

async function poll() {
  let cost = 0;
  if (!paused) {
    const newest = Math.max(-1, ...[...samples.values()].map(each => each.length ? each.at(-1).at : -1));
    const answer = await fetch("state.json" + location.search, {cache: "no-store", headers: {"Timely-Drawn": [...drawings.keys()].join(" "), "Timely-Since": String(newest)}}).catch(() => null);
    const state = answer && answer.ok ? await answer.json().catch(() => null) : null, begun = performance.now();
    gone = !answer;
    if (state) { receive(state); cost = Math.max(1000 * state.cost, performance.now() - begun); } else show();
  }
  setTimeout(poll, Math.max(1000, 10 * cost));  // what takes long to be looked at is looked at less often
}

function save() {
  if (!latest) return;
  const state = {...latest, saved_at: new Date().toISOString(), runs: latest.runs.map(run => ({...run, samples: samples.get(run.key) || []}))};
  const text = SOURCE.replace('id="saved">null<', () => `id="saved">${JSON.stringify(state).replaceAll("<", "\\u003c")}<`);
  const link = document.createElement("a"); link.href = URL.createObjectURL(new Blob([text], {type: "text/html"})); link.download = "timely-report.html"; link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

if (saved) receive(saved); else { show(); poll(); }
