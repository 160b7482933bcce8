// Puts the files of a folder into a container of Azurite: node put.mjs MODULES URL CONTAINER FOLDER PREFIX
import { readdirSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { join, relative } from "node:path";

const [modules, url, container, folder, prefix] = process.argv.slice(2);
const { BlobServiceClient, StorageSharedKeyCredential } = createRequire(join(modules, "/"))("@azure/storage-blob");
// Azurite's own account, the same everywhere and no secret.
const account = "devstoreaccount1";
const key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const service = new BlobServiceClient(`${url}/${account}`, new StorageSharedKeyCredential(account, key));
const to = service.getContainerClient(container);
await to.createIfNotExists();
const walk = (dir) => readdirSync(dir).flatMap((name) => {
  const path = join(dir, name);
  return statSync(path).isDirectory() ? walk(path) : [path];
});
for (const path of walk(folder)) {
  const body = readFileSync(path);
  await to.getBlockBlobClient(`${prefix}/${relative(folder, path)}`).upload(body, body.length);
}
