// Plays the frames of a recorded run, with the chart of the server's page.
(() => {
  const box = document.getElementById("motion"), [place, says, button] = box.children;
  const columns = [{ name: "section", type: "VARCHAR" }, { name: "mib", type: "DOUBLE" }];
  let at = 0, plot = null, timer = null;
  function show() {
    const [step, rows] = FRAMES[at % FRAMES.length];
    plot = chart(place, columns, rows.map(([section, mib]) => ({ section, mib })), plot);
    says.textContent = step.startsWith("-") ? `remove ${step.slice(1)}` : `install ${step}`;
    at++;
  }
  function play(on) {
    clearInterval(timer);
    timer = on ? setInterval(show, 1500) : null;
    button.textContent = on ? "pause" : "play";
  }
  button.onclick = () => play(!timer);
  show();
  play(!matchMedia("(prefers-reduced-motion: reduce)").matches);
})();
