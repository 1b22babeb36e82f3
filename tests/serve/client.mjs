// Calls the endpoints with OpenAI's Node client: node client.mjs URL MODEL
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const chat = { model, messages: [{ role: "user", content: "hi" }], max_completion_tokens: 40, seed: 2 };

const whole = await client.chat.completions.create(chat);
let streamed = "";
let usage = null;
const chunks = await client.chat.completions.create({
  ...chat,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of chunks) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}

const text = { model, prompt: "abc", max_tokens: 40, seed: 1, logprobs: 1 };
const completed = await client.completions.create(text);
let completedStreamed = "";
for await (const chunk of await client.completions.create({ ...text, stream: true })) {
  completedStreamed += chunk.choices[0].text;
}

let param = null;
try {
  await client.chat.completions.create({ ...chat, logit_bias: { 5: 1 } });
} catch (error) {
  param = error.param;
}

let broken = null;
try {
  const late = { headers: { "x-request-timeout-seconds": "0.3" } };
  const stream = await client.completions.create({ ...text, max_tokens: 1024, stream: true }, late);
  for await (const chunk of stream) void chunk;
} catch (error) {
  broken = error.code;
}

console.log(
  JSON.stringify({
    whole: whole.choices[0].message.content,
    streamed,
    usage,
    completed: completed.choices[0].text,
    completedStreamed,
    param,
    broken,
    requestId: whole._request_id,
  }),
);
