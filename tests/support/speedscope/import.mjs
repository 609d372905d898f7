// Prints what speedscope itself makes of a file: for each profile its frames, in its own units.
//
// The package is built for a browser and exports nothing. Its importer needs none, so the bundle is
// run up to where it has loaded the importer, which is the first thing that it does.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const release = path.join(import.meta.dirname, "node_modules/speedscope/dist/release");
const bundle = fs.readdirSync(release).find((name) => /^speedscope-.*\.js$/.test(name));
const source = fs.readFileSync(path.join(release, bundle), "utf8");
const loading = /var (\w+)=(Promise\.resolve\(\)\.then\(\(\)=>\(\w+\(\),\w+\)\));\1\.then/;
if (!loading.test(source)) throw new Error("speedscope loads its importer in another way now");

const nothing = new Proxy(function () {}, {
  get: (_, name) => (name === Symbol.toPrimitive ? () => "" : nothing),
  apply: () => nothing,
  construct: () => nothing,
});
globalThis.window = globalThis.document = nothing;
globalThis.stop = {};
try {
  vm.runInThisContext(source.replace(loading, "globalThis.importer=$2;throw globalThis.stop;$1.then"));
} catch (thrown) {
  if (thrown !== globalThis.stop) throw thrown;
}

console.log = console.error; // standard output is the result's
const file = process.argv[2];
const text = fs.readFileSync(file, "utf8");
const { importProfileGroupFromText } = await globalThis.importer;
const group = await importProfileGroupFromText(path.basename(file), text);
const profiles = group.profiles.map((profile) => {
  const frames = {};
  profile.forEachFrame((frame) => {
    frames[frame.name] = { self: frame.getSelfWeight(), total: frame.getTotalWeight() };
  });
  return {
    name: profile.getName(),
    unit: profile.getWeightUnit(),
    total: profile.getTotalWeight(),
    frames,
  };
});
process.stdout.write(JSON.stringify(profiles));
