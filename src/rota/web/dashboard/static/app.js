// @ts-check
// Scripts of every page: live updates, relative times, actions and keyboard shortcuts.
import "./actions.js";
import "./keys.js";
import "./live.js";
import "./times.js";
