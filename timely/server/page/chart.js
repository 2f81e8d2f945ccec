"use strict";
// A chart of rows, by uPlot: lines over the first column of times or numbers, or bars for each text.
const DOUBLES = ["DOUBLE", "FLOAT"], NUMBERS = ["BIGINT", "DECIMAL", ...DOUBLES], TIMES = ["DATE", "TIMESTAMP"], BARS = 60, COLOURS = ["#2b8cbe", "#e6842a", "#3d9a50", "#b0479c", "#8a6d3b"];
const isTime = column => TIMES.some(each => column.type.startsWith(each));

// The ends of the axis: all values, of a line's last point too, and 0 where there are bars.
function ends(plot, line) {
  let low = line ? Infinity : 0, high = line ? -Infinity : 0;
  for (const values of plot.data.slice(1)) for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
  return low <= high ? uPlot.rangeNum(low, high, 0.1, true) : [0, 1];
}

// Draws in a box, and returns the plot; one that is given, and has these columns, is changed.
function chart(box, columns, rows, before) {
  const numbers = columns.filter(column => NUMBERS.includes(column.type));
  const x = columns.find(isTime) ?? (numbers.length > 1 && !columns.some(column => column.type === "VARCHAR") ? numbers[0] : columns.find(column => !NUMBERS.includes(column.type)) ?? null);
  const ys = numbers.filter(column => column !== x), time = x && isTime(x), line = time || (x && NUMBERS.includes(x.type));
  if (!ys.length) { box.textContent = "A chart needs a column of numbers."; return { note: "" }; }
  const at = value => time ? Date.parse(value + (/T|:/.test(value) ? (/[Z+]/.test(value) ? "" : "Z") : "T00:00Z")) / 1000 : Number(value);
  const shown = line ? rows.filter(row => row[x.name] !== null) : rows.slice(0, BARS);
  const points = shown.map((row, n) => [line ? at(row[x.name]) : n, row]).sort((a, b) => a[0] - b[0]);
  const data = [points.map(each => each[0]), ...ys.map(y => points.map(([, row]) => row[y.name] === null ? null : Number(row[y.name])))];
  const key = JSON.stringify(columns);
  let plot = before?.key === key ? before : null;
  if (!plot) {
    const axis = { stroke: getComputedStyle(document.body).color, grid: { stroke: "#8884", width: 1 }, ticks: { stroke: "#8884" } };
    const name = (u, n) => String(u.labels?.[n]?.[x?.name] ?? "");
    const texts = { ...axis, values: (u, places) => places.map(n => n % Math.ceil(20 * places.length / u.width) ? "" : name(u, n)), splits: u => u.data[0], rotate: (u, values) => values?.length > 8 ? -50 : 0, size: (u, values) => values?.length > 8 ? 84 : 50 };
    box.replaceChildren();
    plot = new uPlot({ width: box.clientWidth, height: 260, tzDate: each => uPlot.tzDate(new Date(each * 1000), "UTC"), scales: { x: { time: Boolean(time) }, y: { range: u => ends(u, line) } }, axes: [line ? axis : texts, { ...axis, size: 72 }],
      series: [{ label: x?.name ?? "row", ...(line ? {} : { value: name }) }, ...ys.map((y, n) => ({ label: y.name, stroke: COLOURS[n % 5], fill: line ? undefined : COLOURS[n % 5] + "99", ...(line ? {} : { paths: uPlot.paths.bars({ size: [0.7, 60] }) }) }))],
    }, data, box);
  }
  Object.assign(plot, { key, labels: points.map(each => each[1]), note: !line && rows.length > BARS ? `The chart has the first ${BARS} rows.`
    : line && points.some((each, n) => n && each[0] === points[n - 1][0]) ? `Several rows are at one ${x.name}: group by it alone for one line.` : "" });
  plot.setData(data);
  if (!line) plot.setScale("x", { min: -0.6, max: shown.length - 0.4 });
  return plot;
}
