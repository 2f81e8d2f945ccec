// The theme makes a landmark of each code block's button: they are none.
new MutationObserver(() => document.querySelectorAll("nav.md-code__nav").forEach(nav => nav.setAttribute("role", "none"))).observe(document.body, {childList: true, subtree: true});
