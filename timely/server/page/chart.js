"use strict";
// A chart of rows, by uPlot: lines over a column of times or numbers, one for each text, or bars for each text.
const DOUBLES = ["DOUBLE", "FLOAT"], NUMBERS = ["BIGINT", "DECIMAL", ...DOUBLES], BARS = 60, LINES = 10, COLOURS = ["#2b8cbe", "#e6842a", "#3d9a50", "#b0479c", "#8a6d3b"];
const isNumber = column => NUMBERS.includes(column.type), isTime = column => /^(DATE|TIMESTAMP)/.test(column.type);

// What is shown of a value: of doubles the 15 digits that are exact, of midnights the date.
const rounded = value => typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(15)) : value;
const written = (value, type) => value && typeof value === "object" ? JSON.stringify(value, (_, each) => rounded(each)) : String(rounded(value)).replace(type === "TIMESTAMP" ? /T00:00:00$/ : "", "");

// The ends of the axis: all values, of a line's last point too, and 0 where there are bars.
function ends(plot, x) {
  let low = x ? Infinity : 0, high = x ? -Infinity : 0;
  for (const values of plot.data.slice(1)) for (const value of values) if (value != null) { low = Math.min(low, value); high = Math.max(high, value); }
  return low <= high ? uPlot.rangeNum(low, high, 0.1, true) : [0, 1];
}

// Draws in a box, and returns the plot; one that is given, and has the same lines, is changed.
function chart(box, columns, rows, before) {
  const numbers = columns.filter(isNumber), texts = columns.filter(column => !isNumber(column) && !isTime(column)), label = row => texts.map(({ name, type }) => written(row[name], type)).join(", ");
  const x = columns.find(isTime) ?? (numbers.length > 1 && !texts.length ? numbers[0] : null), time = Boolean(x && isTime(x)), ys = numbers.filter(column => column !== x);
  if (!ys.length) { box.textContent = "A chart needs a column of numbers."; return { note: "" }; }
  const at = value => time ? Date.parse(value + (/T|:/.test(value) ? (/[Z+]/.test(value) ? "" : "Z") : "T00:00Z")) / 1000 : Number(value);
  const all = (x ? rows.filter(row => row[x.name] !== null) : rows.slice(0, BARS)).map((row, n) => ({ row, label: label(row), place: x ? at(row[x.name]) : n }));
  const names = new Set(all.map(each => each.label)), split = x && names.size > 0 && 2 * names.size <= all.length;  // else a text names a row, not a line
  const lines = split ? [...names] : [""], line = each => split ? each.label : "", drawn = new Set(lines.slice(0, LINES)), shown = all.filter(each => drawn.has(line(each)));
  const repeated = x && new Set(shown.map(each => `${each.place} ${line(each)}`)).size < shown.length, groups = new Map();
  shown.forEach((each, n) => { const spot = repeated ? n : each.place; groups.has(spot) ? groups.get(spot).push(each) : groups.set(spot, [each]); });
  const points = [...groups.values()].sort(([a], [b]) => a.place - b.place);
  const series = [...drawn].flatMap(name => ys.map(y => ({ name, y, label: name && ys.length < 2 ? name : `${name} ${y.name}`.trim() })));
  const value = (row, y) => row && (row[y.name] === null ? null : Number(row[y.name]));  // a line goes on where it has no row, and is broken at NULL
  const data = [points.map(([first]) => first.place), ...series.map(({ name, y }) => points.map(group => value(group.find(each => line(each) === name)?.row, y)))];
  const key = JSON.stringify([columns, ...drawn]);
  let plot = before?.key === key ? before : null;
  if (!plot) {
    const axis = { stroke: () => getComputedStyle(box).color, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884" } }, bar = (u, n) => u.bars?.[n] ?? "";
    const below = { ...axis, values: (u, places) => places.map(n => n % Math.ceil(20 * places.length / u.width) ? "" : bar(u, n)), splits: u => u.data[0], rotate: (u, values) => values?.length > 8 ? -50 : 0, size: (u, values) => values?.length > 8 ? 84 : 50 };
    const kind = n => x ? { dash: n < 5 ? [] : [6, 4] } : { fill: COLOURS[n % 5] + "99", points: { show: false }, paths: uPlot.paths.bars({ size: [0.7 - 0.7 * n / ys.length, 60 - 60 * n / ys.length] }) };
    box.replaceChildren();
    plot = new uPlot({ width: box.clientWidth, height: 260, tzDate: each => uPlot.tzDate(new Date(each * 1000), "UTC"), scales: { x: { time }, y: { range: u => ends(u, x) } }, axes: [x ? axis : below, { ...axis, size: 72 }],
      series: [x ? { label: x.name } : { label: texts.map(text => text.name).join(", ") || "row", value: bar }, ...series.map(({ label }, n) => ({ label, stroke: COLOURS[n % 5], ...kind(n) }))] }, data, box);
  }
  Object.assign(plot, { key, bars: all.map(each => each.label), note: !x && rows.length > BARS ? `The chart has the first ${BARS} rows.`
    : lines.length > LINES ? `The chart has the first ${LINES} lines of ${lines.length}.` : repeated ? `Several rows are at one ${x.name}: group by it for one line.` : "" });
  plot.setData(data);
  if (!x) plot.setScale("x", { min: -0.6, max: shown.length - 0.4 });
  return plot;
}
