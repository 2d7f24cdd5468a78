// llama.cpp beside the engine: usage: node peer.mjs MODEL.gguf THREADS [RUNS]. One JSON object a run on stdout, with the
// same fields as bench_engine's. bench/run installs node-llama-cpp and copies this file beside it.
import { getLlama } from "node-llama-cpp";

const [model_path, thread_text, run_text] = process.argv.slice(2);
const threads = Number(thread_text);
const prompt_tokens = 512;
const decode_tokens = 32;

const llama = await getLlama({ gpu: false, build: "never", progressLogs: false, logLevel: "error", maxThreads: threads });
const model = await llama.loadModel({ modelPath: model_path, gpuLayers: 0, useMmap: true });
console.log(JSON.stringify({ engine: "llama.cpp", release: llama.llamaCppRelease.release, features: llama.systemInfo }));

const random_id = (index) => Number((BigInt(index) * 2654435761n + 12345n) % 1000n) + 300;
const seconds = (since) => (performance.now() - since) / 1000;

async function measure() {
  const context = await model.createContext({ contextSize: 1024, batchSize: 512, threads, sequences: 1 });
  const sequence = context.getSequence();
  const prompt = Array.from({ length: prompt_tokens }, (_, index) => random_id(index));
  let start = performance.now();
  await sequence.evaluateWithoutGeneratingNewTokens(prompt);
  const prefill = prompt_tokens / seconds(start);
  await sequence.clearHistory();
  await sequence.evaluateWithoutGeneratingNewTokens(prompt.slice(0, 16));
  let produced = 0;
  start = performance.now();
  for await (const token of sequence.evaluate([random_id(77)], { temperature: 0, yieldEogToken: true })) {
    void token;
    if (++produced === decode_tokens) break;
  }
  const decode = produced / seconds(start);
  await context.dispose();
  return { engine: "llama.cpp", threads, decode, prefill };
}

for (let run = 0; run < Number(run_text ?? 1); ++run) console.log(JSON.stringify(await measure()));
await llama.dispose();
process.exit(0);
