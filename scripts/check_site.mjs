// Opens each page of the built site in Chromium, wide and narrow, light and dark, and reports errors,
// requests to other servers, broken links, diagrams that are not drawn, names that break in the first
// column of a table, examples that are cut, and serious violations found by axe. Exits with 1 if there are any.
//
//     node scripts/check_site.mjs SITE MODULES [SCREENSHOTS]
//
// SITE is the folder of the site, MODULES a folder that contains node_modules, and SCREENSHOTS a folder
// for screenshots.

import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import path from "node:path";

const [site, modules, screenshots] = process.argv.slice(2).map((name) => path.resolve(name));
const require = createRequire(path.join(modules, "package.json"));
const puppeteer = require("puppeteer-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const types = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };
const sizes = { wide: { width: 1280, height: 900 }, narrow: { width: 390, height: 844, isMobile: true } };

const fileOf = (address) => {
  const file = path.join(site, decodeURI(new URL(address).pathname));
  return file.endsWith(path.sep) || !path.extname(file) ? path.join(file, "index.html") : file;
};

const server = http.createServer((request, response) => {
  const file = fileOf(`http://site${request.url}`);
  if (!fs.existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { "Content-Type": types[path.extname(file)] ?? "application/octet-stream" });
  fs.createReadStream(file).pipe(response);
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const base = `http://127.0.0.1:${server.address().port}/`;

const pages = fs
  .readdirSync(site, { recursive: true })
  .filter((name) => path.basename(name) === "index.html")
  .map((name) => path.dirname(name).replace(/^\.$/, "").split(path.sep).join("/"))
  .map((name) => (name ? `${name}/` : ""))
  .sort();

async function findings(browser, name, size, scheme) {
  const context = await browser.createBrowserContext(); // the theme remembers the scheme
  const page = await context.newPage();
  const found = new Set();
  page.on("console", (message) => message.type() === "error" && found.add(`console: ${message.text()}`));
  page.on("pageerror", (error) => found.add(`script: ${error.message}`));
  page.on("request", (request) => {
    const inside = request.url().startsWith(base) || /^(data|blob):/.test(request.url());
    if (!inside) found.add(`asks another server: ${request.url()}`);
  });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.setViewport(sizes[size]);
  await page.goto(base + name, { waitUntil: "load" });
  const isDrawn = () => !document.querySelector("pre.mermaid");
  await page.waitForFunction(isDrawn, { timeout: 30_000 }).catch(() => found.add("a diagram is not drawn"));
  if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) found.add("is wider than the screen");
  for (const what of await page.evaluate(broken, name === "", size)) found.add(what);
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => (await window.axe.run()).violations);
  for (const { id, impact, nodes } of violations) {
    if (["serious", "critical"].includes(impact)) found.add(`${id}, ${nodes.length} times: ${nodes[0].html}`);
  }
  const links = await page.evaluate(() => [...document.querySelectorAll("a[href]")].map((link) => link.href));
  const ids = await page.evaluate(() => [...document.querySelectorAll("[id]")].map((element) => element.id));
  if (screenshots) {
    fs.mkdirSync(screenshots, { recursive: true });
    const picture = `${name.replace(/\/$/, "").replaceAll("/", "_") || "home"}-${size}-${scheme}.png`;
    await page.screenshot({ path: path.join(screenshots, picture), fullPage: true });
  }
  await context.close();
  return { found, links, ids };
}

// Returns the names in first columns that break over lines, and the examples that do not fit: on a wide
// screen those of all pages, on a narrow one those of the first page.
function broken(isHome, size) {
  const found = [];
  for (const cell of document.querySelectorAll(".md-typeset td:first-child")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      for (const word of text.data.matchAll(/\S+/g)) {
        const range = document.createRange();
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1) found.push(`${word[0]} breaks in the first column of a table`);
      }
    }
  }
  const examples = [...document.querySelectorAll(".md-typeset pre:not(.mermaid)")];
  for (const example of isHome || size === "wide" ? examples : []) {
    const { scrollWidth, clientWidth, innerText } = example;
    if (scrollWidth > clientWidth) found.push(`an example of ${scrollWidth} px is cut at ${clientWidth}: ${innerText.slice(0, 60)}`);
  }
  return found;
}

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const links = new Map();
const idsOf = new Map();
let failures = 0;
const tell = (where, what) => {
  failures += 1;
  console.error(`${where}: ${what}`);
};
for (const name of pages) {
  for (const [size, scheme] of [["wide", "light"], ["wide", "dark"], ["narrow", "light"]]) {
    const seen = await findings(browser, name, size, scheme);
    for (const what of seen.found) tell(`${name || "home"} (${size}, ${scheme})`, what);
    idsOf.set(base + name, new Set(seen.ids));
    for (const link of seen.links) links.set(link, name || "home");
  }
}
for (const [link, from] of links) {
  if (!link.startsWith(base)) continue;
  const [address, anchor] = link.split("#");
  if (!fs.existsSync(fileOf(address))) tell(from, `${link} leads nowhere`);
  else if (anchor && idsOf.has(address) && !idsOf.get(address).has(decodeURIComponent(anchor))) {
    tell(from, `${link} has no such heading`);
  }
}
await browser.close();
server.close();
console.log(`${pages.length} pages, ${links.size} links: ${failures || "no"} findings`);
process.exitCode = failures ? 1 : 0;
