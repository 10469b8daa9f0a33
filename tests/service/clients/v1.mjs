// The first npm client of the retired service, played against an address; prints what it saw.
import { createRequire } from "node:module";

const require = createRequire(process.argv[4] + "/");
const { PersonalizerClient } = require("@azure/cognitiveservices-personalizer");
const { ApiKeyCredentials } = require("@azure/ms-rest-js");

const key = new ApiKeyCredentials({ inHeader: { "Ocp-Apim-Subscription-Key": "key" } });
const client = new PersonalizerClient(key, process.argv[2], { noRetryPolicy: true });
const actions = [["pasta", 7], ["soup", 4.5], ["salad", 5]].map(([id, price]) => (
  { id, features: [{ taste: id, price }] }
));
const ranked = (eventId, more) => client.rank(
  { actions, contextFeatures: [{ day: "monday" }], eventId, ...more }
);
const codeOf = async (call) => {
  try {
    await call();
  } catch (error) {
    return [error.statusCode, error.body?.error?.code];
  }
  return null;
};

const seen = { events: {} };
for (const event of JSON.parse(process.argv[3])) {
  const answer = await ranked(event, { excludedActions: ["soup"], deferActivation: true });
  await client.events.activate(event);
  await client.events.reward(event, { value: 0.5 });
  seen.events[answer.eventId] = {
    chosen: answer.rewardActionId,
    ranking: Object.fromEntries(answer.ranking.map((one) => [one.id, one.probability])),
  };
}
seen["reward 2"] = await codeOf(() => client.events.reward("e", { value: 2 }));
seen["unknown"] = await codeOf(() => client.events.activate("nobody knows"));
seen["bad rank"] = await codeOf(() => ranked("e", { excludedActions: ["pizza"] }));
console.log(JSON.stringify(seen));
