// Bundles src/ into the assets that the Python package carries; --check compares instead of writing.

import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const assets = fileURLToPath(new URL("../src/torchgauge/report/assets/", import.meta.url));

const { dependencies } = JSON.parse(await readFile(`${here}package.json`, "utf8"));
const licences = await Promise.all(
  Object.entries(dependencies).map(async ([name, version]) => {
    const text = await readFile(`${here}node_modules/${name}/LICENSE`, "utf8");
    return `${name} ${version}\n\n${text.trim()}\n`;
  }),
);
// The page carries the libraries, so it carries their licences too.
const banner = `/*! Contains:\n\n${licences.join("\n\n")}*/`;

const { outputFiles } = await build({
  absWorkingDir: here,
  entryPoints: { page: "src/main.ts", live: "src/live/live.ts" },
  outdir: assets,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  write: false,
  banner: { js: banner },
});
const built = outputFiles.map(({ path, text }) => [path, text]);
built.push([`${assets}LICENSES.txt`, `The page contains:\n\n${licences.join("\n\n")}`]);

let stale = 0;
for (const [path, text] of built) {
  // A closing tag in the script would end its element in the page.
  if (/<\/(script|style)/i.test(text)) throw new Error(`${path} holds a closing tag`);
  if (!process.argv.includes("--check")) {
    await writeFile(path, text);
    console.log(`${path}: ${Buffer.byteLength(text).toLocaleString("en")} bytes`);
  } else if ((await readFile(path, "utf8").catch(() => "")) !== text) {
    console.error(`${path} is not what src/ builds: run npm run build, and commit it.`);
    stale = 1;
  }
}
process.exit(stale);
