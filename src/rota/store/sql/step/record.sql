-- Record journal entries of many jobs. Returns those that were not recorded, by index: true if the claim still holds
-- the job, so an entry exists already and is kept; false if the job was taken back.
--
-- The claims are locked for key share: the jobs cannot be taken back meanwhile, and outcomes of other jobs in the same
-- claims need not wait. Only an open entry is updated; all others are written once.
with held as materialized (
    select claims.id, claims.jobs
      from rota.claims
     where claims.id = any(%(claims)s::bigint[])
       and claims.worker = %(worker)b::bigint
     order by claims.id
       for key share
),
given as materialized (
    select given.*, held.id is not null as accepted
      from unnest(%(claims)s::bigint[], %(jobs)s::bigint[], %(kinds)s::text[], %(names)s::text[], %(numbers)s::int[],
                  %(positions)s::int[], %(in_main_branch)s::boolean[], %(is_open)s::boolean[], %(tries)s::smallint[],
                  %(durations)s::bigint[], %(delays)s::float8[], %(untils)s::timestamptz[], %(results)s::json[],
                  %(errors)s::json[], %(branch_keys)s::text[])
           with ordinality as given (claim, job, kind, name, number, position, main_branch, open, tries, duration,
                                     seconds, wake_at, result, error, branch_key, index)
      left join held on held.id = given.claim and given.job = any(held.jobs)
),
kept as (
    insert into rota.steps as known
           (job, kind, name, number, position, main_branch, open, tries, seconds, wake_at, result, error, branch_key)
    select given.job, given.kind::rota.entry_kind, given.name, given.number, given.position, given.main_branch,
           given.open,
           given.tries, given.duration::float8 / 1e6,
           coalesce(given.wake_at, rota.clock() + make_interval(secs => given.seconds)), given.result, given.error,
           given.branch_key
      from given
     where given.accepted
    on conflict (job, kind, name, number) do update
       set open = excluded.open, tries = excluded.tries, at = excluded.at, seconds = excluded.seconds,
           wake_at = coalesce(excluded.wake_at, known.wake_at), result = excluded.result, error = excluded.error
     where known.open
    returning known.job, known.kind, known.name, known.number
)
select given.index::int, given.accepted
  from given
 where not exists (
       select from kept
        where kept.job = given.job and kept.kind = given.kind::rota.entry_kind and kept.name = given.name
          and kept.number = given.number)
