-- Return claims of workers that are gone, and claims past their visibility timeout, with ids greater than `after`.
select claims.id, claims.worker, claims.jobs
  from rota.claims
  left join rota.workers on workers.id = claims.worker
 where claims.id > %(after)s::bigint
   and case when claims.expires is null then coalesce(workers.state not in ('active', 'draining'), true)
            else claims.expires <= rota.clock() end
 order by claims.id
 limit %(limit)s::int
