// The REST client of the retired service, played against an address; prints what it saw.
import { createRequire } from "node:module";

const require = createRequire(process.argv[4] + "/");
const { default: make, isUnexpected } = require("@azure-rest/ai-personalizer");

const client = make(
  process.argv[2], { key: "key" }, { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } }
);
const actions = [["pasta", 7], ["soup", 4.5], ["salad", 5]].map(([id, price]) => (
  { id, features: [{ taste: id, price }] }
));
const ranked = (eventId, more) => client.path("/rank").post(
  { body: { actions, contextFeatures: [{ day: "monday" }], eventId, ...more } }
);
const well = (answer, status) => {
  if (isUnexpected(answer) || answer.status !== status) {
    throw new Error(`${status} was expected: ${JSON.stringify(answer.body)} ${answer.status}`);
  }
  return answer.body;
};
const codeOf = (answer) => (
  isUnexpected(answer) ? [Number(answer.status), answer.body.error.code] : null
);

const seen = { events: {} };
for (const event of JSON.parse(process.argv[3])) {
  const answer = well(await ranked(event, { excludedActions: ["soup"], deferActivation: true }), "201");
  well(await client.path("/events/{eventId}/activate", event).post(), "204");
  well(await client.path("/events/{eventId}/reward", event).post({ body: { value: 0.5 } }), "204");
  seen.events[answer.eventId] = {
    chosen: answer.rewardActionId,
    ranking: Object.fromEntries(answer.ranking.map((one) => [one.id, one.probability])),
  };
}
seen["reward 2"] = codeOf(
  await client.path("/events/{eventId}/reward", "e").post({ body: { value: 2 } })
);
seen["unknown"] = codeOf(await client.path("/events/{eventId}/activate", "nobody knows").post());
seen["bad rank"] = codeOf(await ranked("e", { excludedActions: ["pizza"] }));

const settings = well(await client.path("/configurations/service").get(), "200");
const body = { ...settings, rewardWaitTime: "PT20M", learningMode: "Apprentice" };
seen.put = well(await client.path("/configurations/service").put({ body }), "200");
seen.policy = well(await client.path("/configurations/policy").get(), "200");
seen.model = well(await client.path("/model/properties").get(), "200");
seen.logs = well(await client.path("/logs/properties").get(), "200");
const evaluated = well(await client.path("/evaluations").post({ body: {
  name: "rest", startTime: new Date("2020-01-01"), endTime: new Date("2099-01-01"),
  enableOfflineExperimentation: false,
  policies: [{ name: "custom", arguments: "halfLife=2 days" }],
} }), "201");
const evaluation = client.path("/evaluations/{evaluationId}", evaluated.id);
do {
  await new Promise((resolve) => setTimeout(resolve, 200));
  seen.evaluation = well(await evaluation.get(), "200");
} while (seen.evaluation.status === "pending");
seen.evaluations = well(await client.path("/evaluations").get(), "200").map((each) => each.id);
well(await client.path("/configurations/applyFromEvaluation").post(
  { body: { evaluationId: evaluated.id, policyName: "custom" } }
), "204");
seen.applied = well(await client.path("/configurations/service").get(), "200").halfLife;
well(await client.path("/configurations/policy").delete(), "200");
seen.deletion = (await evaluation.delete()).status; // isUnexpected takes DELETE for GET here
seen.deleted = codeOf(await evaluation.get());
well(await client.path("/model").get(), "200");
well(await client.path("/model").delete(), "204");
well(await client.path("/logs").delete(), "204");
const slots = [
  { id: "top", baselineAction: "pasta", features: [{ size: "large" }], excludedActions: ["soup"] },
  { id: "side", baselineAction: "soup", positionFeatures: [] },
];
seen.multislot = well(await client.path("/multislot/rank").post(
  { body: { actions, slots, eventId: "page", deferActivation: true } }
), "201");
const page = "/multislot/events/{eventId}";
well(await client.path(`${page}/activate`, "page").post(), "204");
well(await client.path(`${page}/reward`, "page").post(
  { body: { reward: [{ slotId: "top", value: 0.5 }, { slotId: "side", value: 1 }] } }
), "204");
seen["bad slot"] = codeOf(await client.path(`${page}/reward`, "page").post(
  { body: { reward: [{ slotId: "foot", value: 0.5 }] } }
));
console.log(JSON.stringify(seen));
