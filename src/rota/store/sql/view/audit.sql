-- Return audit rows, latest first, before an id; optionally by operator, action and subject.
--
-- Each branch uses the index of the most selective condition given. It is written as a range of that index, in its
-- order, so that the plan does not depend on statistics. With the settings of `tick/set_short_timeouts` the table is
-- never scanned.
select found.id, found.at, found.operator, found.action, found.subject, found.detail
  from ((select audit.*
           from rota.audit
          where %(subject)s::text is null and %(operator)s::text is null and %(action)s::text is null
            and audit.id < %(before)s::bigint
          order by audit.id desc
          limit %(limit)s::int)
         union all
        (select audit.*
           from rota.audit
          where %(subject)s::text is not null
            and (left(audit.subject, 200), audit.id) < (left(%(subject)s::text, 200), %(before)s::bigint)
            and left(audit.subject, 200) >= left(%(subject)s::text, 200)
            and audit.subject = %(subject)s::text
            and audit.operator is not distinct from coalesce(%(operator)s::text, audit.operator)
            and audit.action is not distinct from coalesce(%(action)s::text, audit.action)
          order by left(audit.subject, 200) desc, audit.id desc
          limit %(limit)s::int)
         union all
        (select audit.*
           from rota.audit
          where %(subject)s::text is null and %(operator)s::text is not null
            and (left(audit.operator, 200), audit.id) < (left(%(operator)s::text, 200), %(before)s::bigint)
            and left(audit.operator, 200) >= left(%(operator)s::text, 200)
            and audit.operator = %(operator)s::text
            and audit.action is not distinct from coalesce(%(action)s::text, audit.action)
          order by left(audit.operator, 200) desc, audit.id desc
          limit %(limit)s::int)
         union all
        (select audit.*
           from rota.audit
          where %(subject)s::text is null and %(operator)s::text is null and %(action)s::text is not null
            and (audit.action, audit.id) < (%(action)s::text, %(before)s::bigint)
            and audit.action >= %(action)s::text
          order by audit.action desc, audit.id desc
          limit %(limit)s::int)) as found
 order by found.id desc
 limit %(limit)s::int
