-- Return true if a live worker declares this schedule.
select exists (select
                 from rota.workers
                where workers.state in ('active', 'draining')
                  and %(name)s::text = any(workers.schedules))
