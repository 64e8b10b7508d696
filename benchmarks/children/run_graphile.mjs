// graphile-worker with its documented high-throughput preset. Same protocol as serve.py.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const require = createRequire(join(process.env.BENCH_NODE, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { run, runMigrations, makeWorkerUtils, Logger } = await load("graphile-worker");
const { default: pg } = await load("pg");

const DSN = process.env.BENCH_DSN;
const URL_ARGUMENT = "https://example.com/a/b";
const TICK = 20; // milliseconds
const PAUSE = 0.002; // seconds, as in serve.py
const clock = () => Number(process.hrtime.bigint());
const write = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");
const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

// The batching of its performance page. It adds no latency here. When idle, one local queue polls
// instead of every concurrent job. So it is used for all workloads.
const preset = (concurrency) => ({
  worker: {
    connectionString: DSN,
    concurrentJobs: concurrency,
    localQueue: { size: 1500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: quiet,
  },
});

const pool = new pg.Pool({ connectionString: DSN, max: 2 });
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => {
  const { value, done } = await lines.next();
  return done ? null : JSON.parse(value);
};
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// Its own performance test enqueues with this statement: addJobs() would return every row.
const ADD_JOBS = `select 1 from graphile_worker.add_jobs(
  array(select json_populate_recordset(null::graphile_worker.job_spec, $1::json)))`;
const BARE_TABLE = `create table if not exists bare_jobs (
  id bigint generated always as identity primary key, task text not null, queue text not null,
  arguments jsonb not null, created_at timestamptz not null default now())`;
const BARE_ROW = {
  name: "bare",
  text: "insert into bare_jobs (task, queue, arguments) values ($1, $2, $3::jsonb) returning id",
};

let utils;
async function start(n) {
  utils ??= await makeWorkerUtils({ pgPool: pool, preset: { worker: { logger: quiet } } });
  await utils.addJob("noop", { n, url: URL_ARGUMENT });
}

const verbs = {
  async migrate() {
    await runMigrations({ pgPool: pool, preset: { worker: { logger: quiet } } });
    return {};
  },

  async enqueue({ first, count, calls }) {
    const seconds = [];
    for (let call = 0; call < calls; call++) {
      const began = clock();
      const jobs = [];
      for (let n = first + call * count; n < first + (call + 1) * count; n++) {
        jobs.push({ identifier: "noop", payload: { n, url: URL_ARGUMENT } });
      }
      await pool.query(ADD_JOBS, [JSON.stringify(jobs)]);
      seconds.push((clock() - began) / 1e9);
    }
    return { seconds };
  },

  async singles({ first, count }) {
    await pool.query(BARE_TABLE);
    const own = [];
    const bare = [];
    for (let n = first; n < first + count; n++) {
      const began = clock();
      await start(n);
      const returned = clock();
      await pause(PAUSE);
      const between = clock();
      const values = ["noop", "default", JSON.stringify({ n, url: URL_ARGUMENT })];
      await pool.query({ ...BARE_ROW, values });
      own.push(returned - began);
      bare.push(clock() - between);
      await pause(PAUSE);
    }
    return { own, bare };
  },

  async send({ first, count, shortest, longest }) {
    const sent = [];
    for (let n = first; n < first + count; n++) {
      await pause(shortest + Math.random() * (longest - shortest));
      const before = clock();
      await start(n);
      sent.push([n, before, clock()]);
    }
    return { sent };
  },

  async work({ concurrency, marks, timed }) {
    let count = 0;
    let total = 0;
    const times = [];
    const reached = new Set(marks);
    const taskList = {
      noop: async ({ n }) => {
        if (timed) times.push([n, clock()]);
        count += 1;
        total += n;
        if (reached.has(count)) write({ count, at: clock() });
      },
    };
    let said = 0;
    const tick = () => count !== said && write({ count: (said = count), at: clock() });
    const ticker = marks.length ? setInterval(tick, TICK) : undefined;
    write({ working: clock() });
    const runner = await run({
      preset: preset(concurrency),
      taskList,
      parsedCronItems: [],
      noHandleSignals: true,
    });
    await read();
    await runner.stop();
    clearInterval(ticker);
    return { count, total, times };
  },
};

write({ pid: process.pid });
for (let command = await read(); command !== null; command = await read()) {
  const { do: verb, ...parameters } = command;
  write({ done: verb, ...(await verbs[verb](parameters)) });
}
await utils?.release();
await pool.end();
