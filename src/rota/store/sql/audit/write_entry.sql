-- Write an audit entry, in the transaction of the operator's action.
insert into rota.audit (operator, action, subject, detail)
values (%(operator)s::text, %(action)s::text, %(subject)s::text, %(detail)s::json)
