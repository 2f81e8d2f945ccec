"use strict";
// A picture of a dataflow that scrolls in its frame, zooms, is searched, and shows one scope alone.
const {html, render, useState, useRef, useLayoutEffect} = htmPreact;

const finder = search => path => path.toLowerCase().includes(search.trim().toLowerCase());

// `drawings` has SVG by what it shows, `picked` the path of a box to be looked at; `paint` writes into what is drawn.
function Drawing({drawings, paths, search, onsearch, picked = null, onpick = () => {}, paint = () => {}}) {
  const names = Object.keys(drawings), [chosen, show] = useState(names[0]), canvas = useRef(), reached = useRef(null);
  const shown = chosen in drawings ? chosen : names[0], find = finder(search), searched = search.trim() !== "", hits = searched ? paths.filter(find) : [];
  const lookAt = box => {
    canvas.current.querySelector(".picked")?.classList.remove("picked");
    box.classList.add("picked");
    box.scrollIntoView({block: "center", inline: "center"});
  };
  useLayoutEffect(() => { canvas.current.scrollLeft = (canvas.current.scrollWidth - canvas.current.clientWidth) / 2; }, [shown]);
  useLayoutEffect(() => {
    for (const box of canvas.current.querySelectorAll("g.operator, g.source, g.shut")) {
      const {path} = box.dataset, isShut = box.classList.contains("shut");
      box.classList.toggle("found", hits.some(hit => hit === path || (isShut && hit.startsWith(path + "/"))));
    }
    paint(canvas.current);
    if (picked === reached.current) return;
    const box = canvas.current.querySelector(`g[data-path=${CSS.escape(picked.path)}]`), scope = names.findLast(name => picked.path.startsWith(name + "/"));
    if (!box && shown !== scope) return show(scope);
    reached.current = picked;
    if (box) lookAt(box);
  });
  const zoom = event => {
    const frame = canvas.current, x = (frame.scrollLeft + frame.clientWidth / 2) / frame.scrollWidth, y = (frame.scrollTop + frame.clientHeight / 2) / frame.scrollHeight;
    frame.style.setProperty("--zoom", 2 ** event.target.value);
    frame.scrollTo(x * frame.scrollWidth - frame.clientWidth / 2, y * frame.scrollHeight - frame.clientHeight / 2);
  };
  const next = event => {
    if (event.key !== "Enter") return;
    const found = [...canvas.current.querySelectorAll(".found")], at = found.findIndex(box => box.classList.contains("picked"));
    if (found.length) lookAt(found.at((at + (event.shiftKey ? -1 : 1)) % found.length));
  };
  const click = event => {
    const path = (event.target.closest("g.operator, g.source, g.shut") ?? event.target.closest("g.scope > text")?.parentNode)?.dataset.path;
    if (path in drawings) show(path); else if (path) onpick(path);
  };
  return html`<figure class="drawing" style=${`--width: ${drawings[shown].match(/ width="(\d+)"/)[1]}px`}><div class="tools">
      ${names.length > 1 && html`<select aria-label="scope" onchange=${event => show(event.target.value)}>${names.map(name => html`<option value=${name} selected=${name === shown}>${name}</option>`)}</select>`}
      <input type="range" min="-3" max="3" step="0.25" value="0" aria-label="zoom: 0 fits" title="zoom" oninput=${zoom} />
      <input type="search" placeholder="search operators" aria-label="search operators; Enter goes to the next" value=${search} oninput=${event => onsearch(event.target.value)} onkeydown=${next} />
      <output>${searched && `${hits.length} of ${paths.length}`}</output></div>
    <div class=${`canvas ${searched ? "searching" : ""}`} tabindex="0" role="region" aria-label=${`picture of ${shown}: all operators are in the table`} ref=${canvas} onclick=${click} dangerouslySetInnerHTML=${{__html: drawings[shown]}} /></figure>`;
}

// The picture of a page that has a table of all operators.
function Picture({drawings, rows}) {
  const [search, onsearch] = useState(""), paths = rows.map(row => row.cells[0].textContent), find = finder(search);
  useLayoutEffect(() => rows.forEach((row, place) => { row.hidden = !find(paths[place]); }));
  return html`<${Drawing} ...${{drawings, paths, search, onsearch}} />`;
}

const showPicture = drawings => Object.keys(drawings).length > 0 && render(html`<${Picture} drawings=${drawings} rows=${[...document.querySelectorAll("tbody tr")]} />`, document.getElementById("drawing"));
