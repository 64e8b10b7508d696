// @ts-check
// What every page has: it stays current, says how long ago things were, and does what its buttons say.
import "./actions.js";
import "./keys.js";
import "./live.js";
import "./times.js";
