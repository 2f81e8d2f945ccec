-- Queries that test_sql.py compares with DuckDB at every epoch. A query ends with a semicolon. A comment says why SQLite differs.
-- orders(id, customer, amount), lines(order_id, price, n, day, fee), edges(src not null, dst not null, w)

-- projection and scalar expressions
select * from orders;
select id, customer from orders;
select amount + 1, amount - 2, amount * 3, -amount from orders;
select list_transform([id, 7], lambda x: x + amount), count(*) from orders group by id, amount;
select * from (select id, row_number() over (order by id) as n from orders) where n < NULL;
select amount / 2, amount // 2, amount % 3, (amount - 5) // 2, (amount - 5) % 3 from orders;
select price * n, price + 1, price / 4, price - n, price * 1.5 from lines;
-- SQLite: % takes whole numbers
select fee * 2, fee + 0.25, fee - 1, fee * fee, fee / 2, fee % 2 from lines;
select amount + 0.5, amount * 1.25, 0.1 + 0.2, 1e1 + amount from orders;
select upper(customer), lower(customer), length(customer), customer || '!', concat(customer, '-', customer) from orders;
select substr(customer, 2, 2), substring(customer, 1), substr(customer, -2), trim(' ' || customer || ' ') from orders;
select replace(customer, 'a', 'o'), starts_with(customer, 'a'), nullif(customer, 'ada') from orders;
select case when amount > 5 then 'big' when amount > 2 then 'middle' else 'small' end from orders;
select case customer when 'ada' then 1 when 'bob' then 2 end, if(amount > 3, 1, 0.5) from orders;
select coalesce(amount, 0), coalesce(customer, 'nobody'), ifnull(amount, id), coalesce(amount, 1.5) from orders;
select greatest(id, amount), least(id, amount, 3) from orders;
select abs(amount - 4), round(price), floor(price), ceil(price), round(fee, 1), floor(fee), ceil(fee) from orders, lines where id = order_id;
-- SQLite: casts truncate
select cast(amount as varchar), cast(price as bigint), cast(fee as integer), cast(fee as double), amount::decimal(6, 1) from orders, lines where id = order_id;
-- SQLite: dates are texts
select cast('12' as int) + id, cast(amount as boolean), cast(amount > 3 as int), cast(day as varchar), cast(day as timestamp) from orders, lines where id = order_id;
select day + interval 1 month, day - interval 3 day, day + 7, day - date '2024-01-01', date '2024-02-29' + interval 1 year from lines;
select year(day), month(day), extract(day from day), extract(quarter from day), date_trunc('month', day), extract(dow from day) from lines;
select amount is null, amount is not null, amount = 3, amount <> 3, amount is not distinct from id, amount is distinct from id from orders;
select amount > 3 and id > 2, amount > 3 or id > 2, not amount > 3, (amount > 3) is true, (amount > 3) is not true from orders;
select true, null, 'text', 1, 2.5, date '2024-03-01';
select amount between 2 and 5, amount not between 2 and 5, amount in (1, 2, null), amount not in (1, 2), amount not in (1, null) from orders;
select customer like 'a%', customer not like '%b', customer ilike 'A_A', customer like '%\_%' escape '\' from orders;

-- conditions
select id from orders where amount > 3;
select id from orders where amount > 3 or customer = 'ada';
select id from orders where not (amount > 3 or customer = 'ada');
select id from orders where amount in (1, 3, 5) and customer like '%a%';
select id from orders where customer not like 'a%';
select id from orders where amount is null or customer is null;
select order_id from lines where day >= '2024-01-10' and day < date '2024-02-10';
select id from orders where amount = id;
select id from orders where case when amount > 3 then true end;

-- joins
select o.id, o.customer, l.price from orders o join lines l on o.id = l.order_id;
select o.id, l.n from orders o, lines l where o.id = l.order_id and l.n > 1 and o.amount < 6;
select o.id, l.price from orders o join lines l on o.id = l.order_id and o.amount > l.n;
select o.id, l.price from orders o left join lines l on o.id = l.order_id;
select o.id, l.price from orders o left join lines l on o.id = l.order_id and l.n > 2;
select o.id, l.price from orders o left join lines l on o.id = l.order_id and o.amount > l.n;
select o.id, l.price from orders o left join lines l on o.id = l.order_id where l.price is null;
select o.id, l.price from orders o left join lines l on o.id = l.order_id where l.n > 1;
select o.id, l.price from orders o right join lines l on o.id = l.order_id;
select o.id, l.price from orders o right join lines l on o.id = l.order_id and o.amount > 3 where coalesce(o.amount, 0) < 7;
select o.id, l.price from orders o full join lines l on o.id = l.order_id;
select o.id, l.price from orders o full join lines l on o.id = l.order_id and o.amount < l.n where o.customer is null or l.n > 1;
select o.id, l.n from orders o left join lines l on o.amount < l.n;
select a.id, b.id from orders a join orders b on a.customer = b.customer and a.id < b.id;
select o.id, e.src from orders o cross join edges e where o.amount > e.dst;
select * from edges join edges f using (src);
select * from orders join (select order_id as id, n from lines) using (id);
select id, n from orders full join (select order_id as id, n from lines) as x using (id);
select id, customer from orders natural join (select order_id as id from lines) as x;
select o.customer, l.price, e.dst from orders o join lines l on o.id = l.order_id left join edges e on l.n = e.src;
select o.customer, l.price, e.dst from orders o left join lines l on o.id = l.order_id left join edges e on l.n = e.src where o.id > 1;
select o.customer, l.price, e.dst from orders o left join lines l on o.id = l.order_id join edges e on l.n = e.src;
select o.id from orders o semi join lines l on o.id = l.order_id;
select o.id from orders o anti join lines l on o.id = l.order_id;
select a.id, b.id from orders a join orders b on a.amount = b.amount + 1;
select o.id, l.price from orders o join lines l on o.id = l.price;
select o.id from orders o join lines l on o.id = l.order_id or o.amount = l.n;

-- subqueries
select id from orders o where exists (select 1 from lines l where l.order_id = o.id);
select id from orders o where not exists (select 1 from lines l where l.order_id = o.id);
select id from orders o where exists (select * from lines l where l.order_id = o.id and l.n < o.amount and l.price > 1);
select id from orders o where not exists (select * from lines l where l.order_id = o.id and l.n < o.amount);
select id from orders where exists (select 1 from edges where src = 3);
select id from orders where not exists (select 1 from edges where src = 3);
select id from orders where id in (select order_id from lines where n > 1);
select id from orders where customer in (select customer from orders group by customer having count(*) > 1);
select src from edges where src not in (select dst from edges);
select src from edges where src not in (select order_id from lines where order_id is not null);
select id from orders o where amount in (select n from lines l where l.order_id = o.id);
select src, src in (select dst from edges e) from edges;
select src from edges where src in (select dst from edges e where e.dst > 1) or dst > 4;
select id, exists (select 1 from lines l where l.order_id = o.id) from orders o;
select id, (select count(*) from lines) from orders;
select id, (select max(price) from lines l where l.order_id = o.id) from orders o;
select id, (select count(*) from lines l where l.order_id = o.id) + 1 from orders o;
select id, (select coalesce(sum(n), 0) from lines l where l.order_id = o.id and l.price > 1) from orders o;
select id from orders o where amount > (select avg(n) from lines l where l.order_id = o.id);
select id from orders where amount > (select avg(amount) from orders);
select * from (select id, amount * 2 as double_amount from orders where amount > 1) as x where double_amount < 12;
select x.a, y.n from (select id as a from orders) x join (select order_id, n from lines) y on x.a = y.order_id;
select id from orders o where exists (select 1 from lines l where l.order_id = o.id and exists (select 1 from edges e where e.src = l.n));

-- groups
select count(*), count(amount), sum(amount), avg(amount), min(amount), max(amount) from orders;
select customer, count(*), count(amount), sum(amount), avg(amount), min(amount), max(amount) from orders group by customer;
select order_id, sum(price), avg(price), min(price), max(price), sum(price * n), sum(fee), avg(fee), max(fee) from lines group by order_id;
select customer, count(distinct amount), sum(distinct amount), count(*) from orders group by customer;
select count(distinct customer), count(distinct amount) from orders where amount > 2;
select min(customer), max(customer), min(day), max(day) from orders join lines on id = order_id;
select customer, count(*) as c from orders group by customer having count(*) > 1;
select customer, sum(amount) as s from orders group by customer having s > 5 and min(amount) < 5;
select amount % 2, count(*) from orders group by amount % 2;
select amount % 2 as parity, customer, count(*) from orders group by parity, customer;
select customer, count(*) from orders group by 1;
-- SQLite: upper knows ASCII alone
select upper(customer), sum(amount) + count(*) * 2 from orders group by customer;
select count(*) filter (where amount > 3), sum(amount) filter (where customer = 'ada'), min(amount) filter (where id > 2) from orders;
select sum(amount) from orders where false;
select count(*) from orders having count(*) > 5;
select customer from orders group by customer;
select o.customer, sum(l.price * l.n) as revenue, count(*) from orders o join lines l on o.id = l.order_id group by o.customer;
select year(day), month(day), sum(price) from lines group by year(day), month(day);
select max(s) from (select customer, sum(amount) as s from orders group by customer) as x;
select case when amount > 3 then 'big' else 'small' end as size, count(*) from orders group by size;
select count(*), sum(amount > 3), max(amount > 3) from orders;
select l.order_id, count(o.id) from lines l left join orders o on o.id = l.order_id group by l.order_id;

-- DISTINCT and set operations
select distinct customer from orders;
select distinct customer, amount from orders where id > 1;
select distinct amount % 3 from orders;
select id from orders union all select order_id from lines;
select id from orders union select order_id from lines;
select id from orders except select order_id from lines;
select order_id from lines except select id from orders;
select id from orders except all select order_id from lines;
select id from orders intersect select order_id from lines;
select id from orders intersect all select order_id from lines;
select amount from orders union select price from lines;
select amount from orders union all select fee from lines;
select src from edges union select dst from edges intersect select id from orders;
select src from edges except select dst from edges union all select id from orders;
(select src from edges union select dst from edges) except select id from orders;
select null, id from orders union select customer, amount from orders;
select x, y from (values (1, 'a'), (2, null), (3, 'c')) as t(x, y) left join orders on x = id;

-- first rows
select customer, amount from orders order by amount desc, customer, id limit 3;
select amount from orders order by amount limit 4;
select amount from orders order by amount desc nulls first limit 4;
select amount, customer from orders order by customer nulls first, amount desc nulls last limit 2 offset 1;
select amount from orders order by amount offset 2;
select customer, sum(amount) as s from orders group by customer order by s desc, customer limit 2;
select distinct amount from orders order by amount desc limit 2;
select customer from orders order by amount * 2 desc, customer, id limit 3;
select id from orders union all select src from edges order by id limit 5;
select customer, count(*) from orders group by customer order by count(*) desc, customer limit 2;
select id from orders order by id;
select id from orders order by 1 limit 3;

-- WITH
with big as (select * from orders where amount > 3) select b.id, l.price from big b join lines l on b.id = l.order_id;
with x(a, b) as (select id, amount from orders), y as (select a + b as s from x) select s, count(*) from y group by s;
with t as (select customer, sum(amount) as s from orders group by customer) select a.customer from t a join t b on a.s = b.s;
with recursive r as (select src, dst from edges union select r.src, e.dst from r join edges e on r.dst = e.src) select src, dst from r;
with recursive r(node) as (select 1 union select e.dst from r join edges e on r.node = e.src) select node from r;
with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select n, count(*) from r group by n;
with recursive r(node, d) as (select 1, 0 union select e.dst, d + 1 from edges e, r where e.src = r.node and d < 4) select node, min(d) from r group by node;
with recursive r(node, d) as (select src, 0 from edges where w > 2 union all select e.dst, d + 1 from r join edges e on e.src = r.node where d < 3) select node, d from r;
with recursive r(node) as (select 2 union select e.dst from r join edges e on r.node = e.src where e.w is not null) select id from orders where id is not null and id not in (select src from edges) and exists (select 1 from r where node = id);
with recursive odd(n) as (select id from orders union select n - 2 from odd where n > 1) select n from odd where n is not null;

-- names
-- SQLite: upper knows ASCII alone
select upper(customer) as customer, count(*) from orders group by customer;
select -amount as amount from orders order by amount limit 2;
select amount as id, id as amount from orders where id > 2 order by id, amount limit 2;
select amount * 2 as x, x + 1 as y from orders;
select amount as x from orders where x > 3;
select customer as k, sum(amount) as amount from orders group by k having sum(amount) > 3;
select customer, max(amount) as amount from orders group by customer having amount > 3;
select "ID", Orders.Customer from ORDERS;
select id + 1 as k from orders order by -k limit 3;
select id as k from orders order by -amount, k limit 3;
with orders as (select id + 1 as id from orders) select * from orders;
select e.src, f.w from edges e join edges f using (src) join edges g using (src);
select * from orders o left join (select order_id as id, n from lines) l using (id) left join (select src as id, w from edges) e using (id);
select o.* from orders o join lines l on o.id = l.order_id;
select l.*, o.amount from orders o join lines l on o.id = l.order_id;
select count(*) + (select max(amount) from orders) from lines;
select o.id from orders o where exists (select 1 from lines l where l.order_id = o.id) or o.amount > 4;
select o.id from orders o where (select count(*) from lines l where l.order_id = o.id) = 0;
select o.id from orders o where o.amount >= (select min(n) from lines l where l.order_id = o.id and l.day > date '2024-02-01');
select customer from orders where amount = (select max(amount) from orders);
select id from orders where true;
select id from orders where null;
select 1 where 1 > 2;
select sum(w) from edges where src in (select order_id from lines) and dst not in (select 3);
select customer, sum(amount) from orders where amount > 1 group by customer having count(*) >= 1 order by sum(amount) desc, customer limit 2;
select count(*) from (select distinct customer from orders);
select count(*) from (select id from orders order by id limit 3);
select id from (select id, amount from orders order by amount desc, id, customer limit 3) order by id limit 2;
(select id from orders order by id limit 2) union all (select src from edges order by src limit 2);
select trim(customer || '	 '), trim('
' || customer) from orders;
select all id from orders;
-- SQLite: a text is no number, in columns without a type
select id from orders where id = '3';
select day from lines where day in ('2024-01-05', '2024-02-01');
select count(*) from orders, lines;
select count(distinct customer), sum(amount) from orders group by amount % 2 having count(distinct customer) > 1;
select min(distinct amount), avg(distinct amount) from orders;

-- corners
-- SQLite: % takes whole numbers
select price % 2, price % -1.5 from lines where price is not null;
select id from orders where id in (select null);
select id from orders where id in (select order_id from lines where false);
select src from edges where src not in (select 1 where false);
select customer from orders where customer in ('ada', null);
select max(customer) from orders where id in (1,2);
select id from orders where exists (select count(*) from lines where false);
select id from orders o where id in (select max(order_id) from lines l);
select count(*) from orders o left join lines l on true;
select count(*) from orders o left join lines l on false;
select o.id, l.n from orders o full join lines l on o.id > l.order_id;
select o.id from orders o left join lines l on o.id = l.order_id and l.n = 2 and o.amount = 3;
select o.id, l.n from orders o left join lines l on l.n = 2;
select o.id, l.n from orders o left join lines l on o.amount = 2;
select o.id, l.n from orders o right join lines l on o.amount = 2;
select o.id, x.id from orders o full join orders x on o.id = x.amount;
select o.id, e.dst, l.n from orders o right join edges e on o.id = e.src join lines l on l.order_id = e.dst where o.amount is null;
select o.id, e.dst, l.n from orders o, edges e right join lines l on l.order_id = e.dst where o.id = e.src;
select o.id, e.dst, l.n from orders o join edges e on o.id = e.src full join lines l on l.order_id = e.dst where o.id > 2 or l.n > 2;
select sum(1) from orders;
select min(id + 0.5), max(price - 1) from orders, lines;
select sum(price) from lines group by n having sum(price) is null;
select n, sum(price) from lines group by n having not (sum(price) > 3);
select (amount > 3) = (id > 2), (amount > 3) <> true from orders;
select amount from orders where amount between null and 4;
select amount from orders where not (amount between null and 4);
select case when null then 1 when amount is null then 2 end from orders;
select case amount when null then 1 else 2 end from orders;
select nullif(amount, null), nullif(null, amount), nullif(amount, 3.0) from orders;
select coalesce(null, null), coalesce(null, amount, 2.5) from orders;
select customer || null from orders;
select -amount % 3, -(amount % 3), amount - -2 from orders;
select 7 - 3 - 2, 2 + 3 * 4, (2 + 3) * 4, 20 / 2 / 5, 20 // 3 * 2, -7 // 2, 7 % -3;
select amount + 1 > 3 and id < 4 or customer like 'a%' from orders;
select not amount = 3 from orders;
select amount = 3 is null from orders;
select amount is null = true from orders;
select substr(customer, 0), substr(customer, 0, 2), substr(customer, -2, 1), substr(customer, 10), substr(customer, -10, 3), substr(customer, -10) from orders;
select substr(customer, 2, 0) from orders;
-- SQLite: upper knows ASCII alone
select length('Zoë'), upper('straße'), lower('ÉA'), ltrim('  a '), rtrim('  a ');
select replace('aaa', '', 'b'), replace('aaa', 'aa', 'b');
select 'abc' like 'a_c', 'a%c' like 'a\%c', 'abc' like '', '' like '%', 'a
b' like 'a%b', 'ABC' ilike 'a%';
select customer in ('a_a') , customer like 'a_a', customer like 'a\_a' from orders;
select round(2.5), round(-2.5), round(2.567, 2), round(price), floor(fee), ceil(fee), abs(price), abs(fee) from lines;
select floor(amount), ceil(amount), round(amount), abs(-amount) from orders;
-- SQLite: casts truncate
select cast(price as int), cast(fee as int), cast(2.5 as int), cast(-3.5 as bigint) from lines;
select cast(amount as double) / 3, cast(amount as decimal(5,2)) / 3 from orders;
select day + interval '2' week, day - interval 1 quarter, day + interval 36 hour from lines;
select date_trunc('week', day), date_trunc('quarter', day), date_trunc('year', day) from lines;
select day = '2024-01-10', day > timestamp '2024-01-10 12:00:00', cast('2024-01-10' as timestamp) from lines;
select greatest(amount, 2.5), least(customer, 'b'), greatest(price, n) from orders, lines;
select id from orders where amount = 3.0 or amount = 2.5;
select o.id from orders o join lines l on o.amount = l.fee;
select id, id from orders;
select o.id from orders o join orders p using (id);
select count(distinct price), sum(distinct price), avg(distinct fee) from lines;
select count(distinct customer) filter (where amount > 3) from orders;
select count(*) filter (where amount is null) from orders group by customer;
select customer, min(amount) filter (where amount > 20) from orders group by customer;
select sum(amount) + 1, sum(amount + 1), sum(amount) / count(*), sum(amount) * 1.5 from orders;
select sum(amount) // 2, sum(amount) % 3 from orders;
select amount, count(*) from orders group by amount order by 2 desc, 1 nulls first limit 3;
select customer c, sum(amount) s from orders group by c order by s, c limit 2;
select customer from orders group by customer order by count(*) desc, customer limit 2;
select distinct customer from orders order by customer desc limit 2;
select distinct customer as c, amount + 1 as a from orders order by a, c limit 3;
select id, amount from orders order by amount + id, id, amount limit 3;
select id from orders order by customer = 'ada' desc, id limit 3;
select id from orders order by -id limit 2;
select customer as id, id as x from orders order by id, x limit 3;
select o.id from orders o order by o.id limit 2;
select id from orders o order by o.amount, o.id limit 2;
select id from orders intersect select src from edges union select 7;
select 7 as id union all select src from edges except select id from orders;
select id from orders union all select id from orders union select 3;
select id from orders union select id from orders union all select 3;
(select id from orders union all select id from orders) intersect all (select src from edges union all select src from edges);
select 1 union select 1.0;
select 1 union all select 1.5;
select 1 as a union select null;
select true union select false;
select 'a' union select null;
-- SQLite: dates are texts
select date '2024-01-01' union select timestamp '2024-01-01 00:00:00';
select customer from orders where customer > 'a' and customer < 'c';
with a as (select id from orders), b as (select id from a where id > 2) select * from a except all select * from b;
with a as (select 1 as x), b as (with a as (select 2 as x) select x from a) select a.x, b.x from a, b;
select * from (with t as (select id from orders) select * from t) x;
with a as (select * from orders) select (select count(*) from a), (select max(id) from a);
with recursive r as (select 1 as n union all select n + 1 from r where n < 3) select a.n, b.n from r a, r b;
with recursive r(n) as (select 1 union select n + 1 from r where n < (select max(amount) from orders)) select * from r;
with recursive r(a, b) as (select src, dst from edges union select r.a, e.dst from r left join edges e on r.b = e.src) select * from r;
with recursive r(n) as (select 1 union all select n + 1 from (select n from r where n < 4) x) select * from r;
with recursive r(n) as (select src from edges union select * from (select dst from edges join r on src = n union all select dst + 1 from edges where dst < 2) x) select * from r;
with recursive a(n) as (select 1 union select n+1 from a where n<3), b(m) as (select n from a union select m * 2 from b where m < 9) select * from b;
with recursive r(s, d) as (select src, 0 from edges union select e.dst, r.d + 1 from r join edges e on e.src = r.s join (with recursive q(n) as (select 1 union select n + 1 from q where n < 4) select n from q) x on x.n = e.src where d < 3) select * from r;
with recursive r(n) as (select 1 union all select n from r where n > 1) select * from r;
with recursive r(n, w) as (select src, w from edges union all select n, w - 1 from r where w > 0) select n, sum(w) from r group by n;
select (select count(*) from lines l where l.order_id = o.id and l.n = o.amount) from orders o;
select (select count(*) from lines l where l.order_id + 1 = o.id) from orders o;
select (select sum(l.n) + 1 from lines l where o.id = l.order_id) is null from orders o;
select id from orders o where not (exists (select 1 from lines l where l.order_id = o.id) and amount > 3);
select id from orders o where (exists (select 1 from lines l where l.order_id = o.id)) = (amount > 3);
select id from orders o where not not exists (select 1 from lines l where l.order_id = o.id);
select src from edges where not (src in (select order_id from lines where order_id is not null));
select id from orders lines where exists (select 1 from lines l where l.order_id = lines.id);
select id from orders where exists (select 1 from lines where order_id = id);
select id from orders where exists (select 1 from orders o where o.amount = orders.id);
select src from edges where exists (select 1 from edges where dst = 3);
select sum(fee), sum(fee * 1.1), sum(fee * price), avg(fee) from lines;
select fee from lines where fee > 1 and fee < 5.5;
select count(*) from lines where fee = 1.25 or price = 1.25;
select t.x + 1 from (values (1), (2.5), (null)) t(x);
select * from (values (1, date '2024-01-01'), (null, null)) t(a, b) order by a desc nulls last limit 1;
from orders select id;
from orders;
select * exclude (id) from orders;
select * replace (id + 1 as id) from orders;
select o.* exclude (id) from orders o;
select if(amount > 3, 'a', null) from orders;
select id % 2 = 0 as even, count(*) from orders group by even having count(*) > 1;
select amount from orders group by amount having amount > 3;
select count(*) from orders where amount > 2 having sum(id) > 3;
select 1 from orders having count(*) > 2;
select coalesce(sum(amount), 0) from orders where id > 100;
select customer, customer || sum(amount)::varchar from orders group by customer;
select o.customer from orders o group by o.customer having exists (select 1 from edges where src = 3);
select o.id from orders o group by o.id having o.id in (select src from edges);
select 1e400;
select 'a' = 'A', 'a' < 'B';
select id from orders where customer = 'ADA';
select "customer" from orders where "customer" = 'ada';
select count(*) from orders as o(a, b) where a > 2;
select b from orders as o(a, b) where a > 2;
select id from orders where id = amount or (id is null and amount is null);
select id from orders order by id limit 0;
select id from orders order by id nulls first offset 3;
select amount isnull, amount notnull from orders;
select id from orders where id is distinct from null;
select id from orders where null = null or null is null;
select customer ~~ 'a%', customer !~~ 'a%' from orders;
select customer not ilike 'A%' from orders;

-- corners
select * from orders o left join (select order_id as id, n from lines) l using (id) join (select dst as n, w from edges) e using (n);
select * from orders o right join (select order_id as id, n from lines) l using (id);
select id, o.id, l.id from orders o right join (select order_id as id, n from lines) l using (id);
select id, count(*) from orders o full join (select order_id as id, n from lines) l using (id) group by id;
select * from orders o natural full join (select order_id as id, n from lines) l;
select id from orders o full join (select order_id as id, n from lines) l using (id) where id > 2;
select id from orders o full join (select order_id as id, n from lines) l using (id) order by id limit 3;
select o.id, count(*) filter (where l.n > 1) from orders o left join lines l on o.id = l.order_id group by o.id;
select a.id, b.id, c.id from orders a left join orders b on a.amount = b.id left join orders c on b.amount = c.id;
select a.id from orders a, orders b, orders c where a.id = b.amount and b.id = c.amount and a.customer is null;
select a.id from orders a join orders b on a.id = b.id and a.amount = b.amount and a.customer = b.customer;
select a.id from orders a left join orders b on a.id = b.id and b.amount is null where b.id is null;
select a.id from orders a left join orders b on a.id = b.id where b.amount is null or b.amount > 3;
select a.id from orders a right join orders b on a.id = b.id where a.amount is null;
select o.id, x.c from orders o left join (select order_id, count(*) as c from lines group by order_id) x on x.order_id = o.id;
select o.id, coalesce(x.c, 0) from orders o left join (select order_id, count(*) as c from lines group by order_id having count(*) > 1) x on x.order_id = o.id where coalesce(x.c, 0) < 2;
select customer, (select count(*) from lines) from orders group by customer;
select customer, count(*) from orders where id in (select order_id from lines) group by customer having count(*) > (select count(*) from edges where src = 9);
select id from orders where amount > (select avg(n) from lines) and amount < (select max(n) * 3 from lines);
select id from orders where (select count(*) from edges) > 3 or amount = 1;
select id, case when exists (select 1 from lines l where l.order_id = o.id) then 'yes' else 'no' end from orders o;
select id, (select max(n) from lines l where l.order_id = o.id) + (select count(*) from edges e where e.src = o.id) from orders o;
select distinct (select count(*) from lines l where l.order_id = o.id) from orders o;
select count(*) from (select id from orders union select src from edges) as u;
select x, count(*) from (select id as x from orders union all select src from edges) as u group by x;
select u.x, o.customer from (select src as x from edges except select order_id from lines) u left join orders o on o.id = u.x;
select cast(day as timestamp) + interval 90 minute from lines;
select extract(hour from cast(day as timestamp) + interval 90 minute), extract(minute from cast(day as timestamp) + interval 90 minute) from lines;
select cast(cast(day as timestamp) + interval 90 minute as varchar) from lines;
select max(cast(day as timestamp)), min(day + interval 1 hour) from lines;
select date_trunc('hour', cast(day as timestamp) + interval 90 minute), date_trunc('day', day + interval 5 hour) from lines;
select cast(cast(day as timestamp) + interval 90 minute as date) = day from lines;
select day + interval 13 month, day - interval 1 year from lines;
select day between date '2024-01-10' and date '2024-02-10', day in (date '2024-01-10'), day < timestamp '2024-01-20 00:00:01' from lines;
select distinct amount > 3 from orders;
select amount > 3 as big, count(*), sum(amount) from orders group by big order by big desc limit 2;
select min(amount > 3), max(customer like 'a%') from orders;
select a.id from orders a join orders b on (a.amount > 3) = (b.amount > 3);
select a.id, l.order_id from orders a join lines l on a.amount = l.n * 2 and a.id + 1 = l.order_id;
select a.id from orders a join lines l on upper(a.customer) = 'ADA' and a.id = l.order_id;
select a.id from orders a join lines l on a.id = l.order_id and 1 = 1;
select a.id from orders a join lines l on a.id = l.order_id and 1 = 2;
select a.id from orders a left join lines l on a.id = l.order_id and a.id = 3;
select a.id from orders a left join lines l on a.id = 3;
select a.id from orders a full join lines l on a.id = l.order_id and a.id = 3 and l.n = 1;
select a.id from orders a full join lines l on false;
select a.id from orders a full join lines l on a.amount < l.n;
select a.id from orders a semi join lines l on a.id = l.order_id and l.n < a.amount;
select a.id from orders a anti join lines l on a.id = l.order_id and l.n < a.amount;
select a.id from orders a semi join lines l on a.amount < l.n;
select sum(x) from (select sum(amount) as x from orders group by customer union all select sum(n) from lines) t;
select customer from orders group by customer having sum(amount) = (select max(s) from (select sum(amount) as s from orders group by customer) t);
select customer from orders group by customer having count(*) = count(amount) and max(amount) is not null;
select count(*), count(distinct x) from (select amount % 3 as x from orders) t;
select avg(x), sum(x) from (select avg(amount) as x from orders group by customer) t;
select count(x) from (select max(amount) as x from orders where id > 50) t;
select a from (select amount as a, customer from orders) where customer is not null group by a;
select sum(amount) as amount from orders where amount > 3;
select sum(amount) as total, total + 1 from orders;
select amount as a, sum(id) from orders group by a having a > 2 order by a desc limit 2;
select -sum(amount), abs(min(amount)), coalesce(max(amount), 0) + 1 from orders;
select customer, sum(case when amount > 3 then 1 else 0 end) as big from orders group by customer;
select customer, sum(case when amount > 3 then amount end) from orders group by customer;
select sum(price), count(price), avg(price) from lines where price is null;
select count(distinct n), n > 2 from lines group by n > 2;
select n, count(distinct day), count(distinct fee), min(day) from lines group by n;
with recursive r(n) as (select src from edges where w is null union select e.dst from r, edges e where e.src = r.n and exists (select 1 from orders o where o.id = e.dst)) select * from r;
with recursive r(n) as (select src from edges where w is null union select e.dst from edges e right join r on e.src = r.n) select * from r;
with recursive r(n) as (select src from edges union select e.dst from edges e join (select distinct n from r) x on e.src = x.n) select count(*) from r;
with recursive r(n, path) as (select src, 'a' from edges where src < 3 union all select e.dst, r.path || 'b' from r join edges e on e.src = r.n where length(r.path) < 3) select * from r;
with recursive r(n) as (select src from edges union all (select n + 1 from r where n < 8)) select n, count(*) from r group by n;
with recursive r(n) as (select src from edges union select n from (select e.dst as n from r join edges e on e.src = r.n) y where n not in (select 3)) select * from r;
with recursive r as (select src as n, 0 as d from edges union select n, d + 1 from r where d < 2) select n, max(d) from r group by n order by n limit 3;
with r as (select 1 as n), s as (select n + 1 as n from r) select * from r union all select * from s;
with t as (select id from orders) select * from t where id in (select id from t where id > 2);
with t(k) as (select id from orders) select t.k from t, t as u where t.k = u.k;

-- window functions
select id, amount, row_number() over (partition by customer order by amount, id) from orders;
select row_number() over (order by id, customer, amount), rank() over (order by id), dense_rank() over (partition by customer order by amount desc) from orders;
select percent_rank() over (order by amount), cume_dist() over (order by amount), rank() over (), dense_rank() over (partition by id) from orders;
select ntile(3) over (order by id, customer, amount), ntile(20) over (order by id, customer, amount) from orders;
select id, lag(id) over (order by id, customer, amount), lead(id, 2) over (order by id, customer, amount) from orders;
select id, lag(amount, 1, 0) over (partition by customer order by id, amount) from orders;
select lag(amount, 2, id) over (order by id desc, customer, amount), lead(id, -1, null) over (order by id, customer, amount), lag(id, 0) over (order by id) from orders;
-- SQLite: has no decimals
select lag(fee, 1, 0.125) over (order by order_id, price, n, day, fee), lag(fee * n, 1, -2.0) over (order by order_id, price, n, day, fee) from lines;
select lag(amount ignore nulls) over (order by id, customer, amount), lead(amount, 2 ignore nulls) over (order by id, customer, amount) from orders;
select first_value(amount) over (partition by customer order by id, amount), last_value(amount) over (partition by customer order by id, amount), nth_value(amount, 2) over (partition by customer order by id, amount) from orders;
select first_value(amount ignore nulls) over (order by id, customer, amount rows between 1 preceding and 2 following), last_value(amount ignore nulls) over (order by id, customer, amount rows between 3 preceding and 1 preceding), nth_value(amount, 3 ignore nulls) over (order by id, customer, amount rows between unbounded preceding and unbounded following) from orders;
select first_value(id) over (order by id, customer, amount rows between unbounded preceding and unbounded following exclude current row), last_value(id) over (order by id, customer, amount rows between 2 preceding and 2 following exclude current row), nth_value(id, 2) over (order by id, customer, amount rows between 2 preceding and 2 following exclude current row) from orders;
select id, sum(amount) over (), count(*) over (), count(amount) over (), avg(amount) over (), min(amount) over (), max(amount) over () from orders;
select id, sum(amount) over (order by id), count(*) over (order by id), min(customer) over (order by id), max(amount) over (partition by customer order by id) from orders;
select sum(amount) over (order by id, customer, amount rows between 1 preceding and 1 following), max(amount) over (order by id, customer, amount rows between 2 preceding and current row), min(amount) over (order by id, customer, amount rows between current row and unbounded following) from orders;
select sum(amount) over (order by id, customer, amount rows 2 preceding), count(amount) over (order by id, customer, amount rows between 3 following and 5 following), min(amount) over (order by id, customer, amount rows between 5 preceding and 3 preceding) from orders;
select sum(amount) over (order by amount range between 2 preceding and 1 following), count(*) over (order by amount range between 2 preceding and 1 preceding), count(*) over (order by amount desc range between 2 preceding and 1 following) from orders;
select count(*) over (order by amount nulls first range between 1 preceding and 1 following), count(*) over (order by amount desc nulls first range between current row and 1 following), max(id) over (order by amount range between unbounded preceding and 2 following) from orders;
select sum(n) over (order by price range between 1.5 preceding and 0.75 following), sum(price) over (order by fee range between 1.25 preceding and current row) from lines;
select sum(n) over (order by day range between interval 10 day preceding and interval 1 week following), count(*) over (order by cast(day as timestamp) desc range between interval 1 month preceding and current row) from lines;
select count(*) over (order by amount groups between 1 preceding and 1 following), sum(amount) over (order by id groups between 2 preceding and 1 preceding), sum(id) over (order by amount groups between current row and 1 following) from orders;
select count(*) over (order by amount rows between unbounded preceding and unbounded following exclude group), sum(id) over (order by amount range between unbounded preceding and current row exclude current row), count(*) over (order by amount groups between 1 preceding and 1 following exclude ties) from orders;
select max(amount) over (order by id, customer, amount rows between 2 preceding and 2 following exclude group), min(amount) over (partition by customer order by id groups 1 preceding exclude ties) from orders;
select sum(amount) filter (where id > 2) over (partition by customer), count(*) filter (where amount is null) over (order by id) from orders;
select count(distinct amount) over (partition by customer), sum(distinct amount) over (order by id), min(distinct amount) over () from orders;
select stddev(amount) over (order by id), var_pop(price) over (partition by n) from orders, lines where id = order_id;
select median(amount) over (partition by customer), mode(id) over (partition by id), string_agg(customer, '-') over (order by customer, id rows between 1 preceding and current row) from orders;
-- SQLite: min and max stand for bool_and
select bool_and(amount > 3) over (partition by customer), bool_or(amount > 3) over (order by id), count_if(amount > 3) over (order by id) from orders;
select id from orders qualify row_number() over (partition by customer order by amount desc, id) = 1;
select id, row_number() over (partition by customer order by amount desc, id) as rn from orders qualify rn <= 2 and id > 1;
select customer, sum(amount) as s, rank() over (order by sum(amount) desc) as r from orders group by customer;
select customer, sum(sum(amount)) over (), sum(amount) / sum(sum(amount)) over (), sum(count(*)) over (order by customer) from orders group by customer;
select customer, sum(amount) from orders group by customer having count(*) > 1 qualify dense_rank() over (order by sum(amount) desc) <= 2;
select id, sum(amount) over w, count(*) over (w order by id), max(amount) over (v rows between 1 preceding and current row) from orders window w as (partition by customer), v as (partition by customer order by id, amount);
select id, amount - lag(amount) over (order by id, customer, amount) as d, case when row_number() over (order by id, customer, amount) % 2 = 0 then 'even' else 'odd' end from orders;
select * from (select id, customer, row_number() over (partition by customer order by id, amount) as rn from orders) where rn = 1;
select distinct rank() over (order by customer) from orders;
select id from orders order by rank() over (order by amount), id, customer limit 3;
select id, amount, rank() over (order by amount) as r from orders order by r desc, id, customer limit 3;
select x.id, x.s, l.n from (select id, sum(amount) over (partition by customer) as s from orders) x join lines l on l.order_id = x.id;
select id, sum(amount) over (partition by customer, id % 2), sum(amount) over (partition by upper(customer)) from orders;
select sum((select max(n) from lines)) over () from orders;
select count(*) over (partition by w) from edges union all select rank() over (order by id) from orders;
select id from orders where id in (select first_value(order_id) over (order by order_id, price, n, day, fee) from lines);
select sum(amount) over (order by amount between 2 and 5) from orders;
select arg_max(id, amount) over (partition by customer, amount), arg_min(customer, amount) over (order by amount, customer rows between current row and current row) from orders;
select count(*) over (partition by customer order by amount range unbounded preceding) from orders;

-- more aggregates
select covar_pop(amount, id), covar_samp(amount, id) from orders;
select n, covar_pop(price, order_id), covar_samp(price, fee) from lines group by n;
select n, sum(price::float), avg(fee::float), min(price::float + 0.1), max(fee::float) from lines group by n;
select price::float * n, count(*) from lines group by 1 order by price::float * n desc nulls last limit 7;
select corr(amount * 1e100, id * 1e-140) > 0, round(corr(amount * 1e-100, id * 1e-100), 9), round(corr(amount, id), 9), round(regr_slope(amount, id), 9), round(regr_intercept(amount, id), 9), round(regr_r2(amount, id), 9) from orders;
select n, regr_count(price, fee), regr_avgx(price, fee), regr_avgy(price, n), round(regr_sxx(price, fee), 6), round(regr_syy(price, n), 6), round(regr_sxy(price, fee), 6), round(corr(price, fee), 9) from lines group by n;
select n, regr_avgx(price, f), regr_avgy(f, price), round(regr_avgy(price, f), 6), regr_sxx(price, f), round(regr_syy(price, f), 6), regr_intercept(price, f), regr_r2(price, f), regr_slope(price, f) from (select n, price, case when fee > 0 then 'inf'::double when fee is not null then 0.5 end as f from lines) group by n;
select stddev(amount), variance(amount), var_pop(amount), var_samp(amount), stddev_pop(amount), stddev_samp(amount) from orders;
select n, stddev(price), var_pop(fee), stddev_pop(price * 2), var_samp(distinct price) from lines group by n;
-- SQLite: min and max stand for bool_and
select bool_and(amount > 3), bool_or(amount > 3), count_if(amount > 3), bool_and(amount is null) from orders;
-- SQLite: min and max stand for bool_and
select customer, bool_and(amount > 3), bool_or(amount > 3), count_if(amount > 3) from orders group by customer;
select customer, string_agg(cast(amount as varchar), ',' order by amount desc), string_agg(cast(id as varchar) order by id) from orders group by customer;
select string_agg(distinct customer, '-' order by customer), string_agg(customer, '' order by customer) filter (where amount > 3) from orders;
select string_agg(customer, ', ' order by amount desc nulls first, customer) from orders;
select median(amount), quantile_cont(amount, 0.3), quantile_disc(amount, 0.3), quantile_cont(price, 0.9), quantile_disc(customer, 0.5) from orders, lines where id = order_id;
select customer, median(amount), quantile_disc(id, 0.25), quantile_disc(id, 1), quantile_disc(id, 0), median(distinct amount) from orders group by customer;
select customer, quantile_cont(amount, [0.25, 0.5, 1]), percentile_disc([0.9, 0]) within group (order by id desc), histogram(amount), median(amount::float / 3) from orders group by customer;
select o.id, e.* from orders as o, json_each(json_object('a b', [o.amount, 1], 'l', json_object('x', NULL), 'é_', o.customer)) as e;
select key, count(*), min(value) from orders cross join lateral json_each(json_array(id, amount)) group by key;
select percentile_cont(0.25) within group (order by amount), percentile_disc(0.75) within group (order by amount desc), percentile_disc(0.5) within group (order by amount) filter (where id > 2) from orders;
select n, quantile_disc(day, 0.5), quantile_disc(fee, 0.4), quantile_cont(price, 0.35) from lines group by n;
select mode(x) from (select id as x from orders union all select 9 from orders union all select 9 from orders);
select arg_max(id, amount * 100 + id), arg_min(customer, id * 100 + amount), max_by(id, amount * 10 + id), min_by(amount, amount) from orders;
select customer, arg_max(amount, amount), arg_min(id, id) filter (where amount > 3) from orders group by customer;
select first(id order by id), last(id order by id), first(amount order by amount desc), any_value(amount order by amount desc), last(customer order by customer) from orders;
select customer, first(amount order by amount), last(amount order by amount), any_value(id order by id) from orders group by customer;
select sum(amount order by id), count(*) from orders;
select median(amount) + 1, coalesce(mode(amount), 0) - coalesce(mode(amount), 0), stddev(amount) > 2 from orders where amount > 20;
select customer, sum((select max(n) from lines)), max(amount + (select min(n) from lines)) from orders group by customer;
select (select median(n) from lines l where l.order_id = o.id) from orders o;
select (select string_agg(cast(n as varchar) order by n) from lines l where l.order_id = o.id) from orders o;
select customer, stddev(amount), sum(amount), median(amount), max(amount) from orders group by customer having stddev(amount) > 1 or median(amount) > 3;
select count(distinct customer) + count(*), median(distinct amount), bool_or(distinct amount > 2) from orders;

-- USING after outer joins
select * from edges full join edges e using (src) join edges f using (src);
select src, count(*) from edges right join (select order_id as src, n from lines) e using (src) left join (select dst as src, 1 as z from edges) f using (src) where src > 1 group by src;
select * from (select id, amount from orders) a full join (select order_id as id, n from lines) b using (id) full join (select src as id, w from edges) c using (id);
select id, n, w from (select id, amount from orders) a natural full join (select order_id as id, n from lines) b natural left join (select src as id, w from edges) c;
select id from (select id, amount from orders) a right join (select order_id as id, n from lines) b using (id) semi join (select src as id from edges) c using (id);
select id, amount from (select id, amount from orders) a full join (select order_id as id, n as amount from lines) b using (id, amount) join (select src as id, w from edges) c using (id);
-- GROUP BY ALL, DISTINCT ON, ORDER BY ALL
select customer, count(*) from orders group by all;
select customer, id % 2 as odd, sum(amount), 7 as seven from orders group by all;
select count(*) from orders group by all;
select customer, count(*) as n from orders group by all order by all limit 3;
select * from orders order by all desc limit 3;
-- SQLite: nulls sort first in its query
select distinct on (customer) * from orders order by customer, amount, id;
select distinct on (customer) id, amount from orders order by amount desc, id;
select distinct on (customer, id % 2) amount from orders order by id, amount, customer;
select distinct on (upper(customer)) customer, amount as a from orders order by a desc nulls last, id limit 2;
select distinct on (a) a, n from (select amount as a, count(*) as n from orders group by amount, customer) order by a, n;
select distinct on (customer) customer, sum(amount) as s from orders group by customer, id order by customer, s;
-- grouping sets
select customer, id, count(*), sum(amount) from orders group by rollup (customer, id);
select customer, id, count(*), grouping(customer), grouping(id), grouping(customer, id), grouping_id(id, customer) from orders group by cube (customer, id);
select customer, amount, count(*) from orders group by grouping sets ((customer, amount), (customer), ());
select customer, amount, count(*) from orders group by grouping sets (customer, amount, customer);
select customer, amount, id, max(id) from orders group by customer, rollup (amount, id);
select customer, amount, id, count(*) from orders group by rollup (customer), cube (amount, id);
select customer as c, sum(amount) as s from orders group by rollup (c) having count(*) > 1 and grouping(c) = 0;
select customer, sum(amount) from orders where false group by rollup (customer);
select id % 2, customer, median(amount), count(distinct id) from orders group by rollup (id % 2, customer);
select customer, sum(amount), rank() over (partition by grouping(customer) order by sum(amount) desc) from orders group by rollup (customer);
select coalesce(customer, 'all') as c, sum(amount) from orders group by grouping sets ((customer), ()) order by sum(amount) desc, c limit 3;
select count(*) from orders group by grouping sets ((), ());
select count(*) from orders group by ();
select count(*) from orders where false group by ();
-- lateral and correlated subqueries
select * from orders o, lateral (select count(*) as c, max(n) as m from lines l where l.order_id = o.id) x;
select o.id, x.n from orders o, lateral (select n from lines l where l.order_id = o.id order by n desc, price, day, fee limit 2) x;
select o.id, x.n from orders o left join lateral (select n from lines l where l.order_id = o.id and l.n > 2) x on true;
select o.id, x.n from orders o left join lateral (select n from lines l where l.order_id = o.id) x on x.n > o.amount;
select o.id, x.s from orders o join lateral (select o.id + o.amount as s) x on true;
select o.id, x.a, y.b from orders o, lateral (select o.id + 1 as a) x, lateral (select x.a * 2 + o.amount as b) y;
select o.id, y.w from orders o, lateral (select l.n, x.w from lines l, lateral (select w from edges e where e.src = l.n and e.dst >= o.id) x where l.order_id = o.id) y;
select o.id, x.n from orders o, lateral (select n from lines l where l.n < o.amount) x;
select o.id, x.r, x.n from orders o, lateral (select n, row_number() over (order by n, price, day, fee) as r from lines l where l.order_id = o.id) x;
select o.id, x.n, x.c from orders o, lateral (select n, count(*) as c from lines l where l.order_id = o.id group by n) x;
select o.id, x.v from orders o, lateral (select n as v from lines l where l.order_id = o.id union select dst from edges e where e.src = o.id) x;
select o.id, x.v from orders o, lateral (select n as v from lines l where l.order_id = o.id except select dst from edges e where e.src = o.id order by v limit 1) x;
select o.id, x.c from orders o left join lateral (select count(*) as c from lines l where l.order_id = o.id having count(*) > 1) x on true;
select id, (select n from lines l where l.order_id = o.id order by n nulls last, price, day, fee limit 1) from orders o;
select id, (select count(*) from lines l where l.n < o.amount) from orders o;
select id, (select sum(n) from lines l where l.order_id = o.id group by l.order_id) from orders o;
select id, (select sum(n) from lines l where l.order_id = o.id having count(*) > 1) from orders o;
select id, (select o.amount + 1) from orders o;
select id, (select max(w) from (select w from edges e where e.src = o.id and e.dst > 1) x) from orders o;
select id, (select count(*) from (select distinct n from lines l where l.order_id = o.id) x) from orders o;
select id, (select max(l.n) from lines l join edges e on e.src = o.id and e.dst = l.n) from orders o;
select id, (select max(l.n) from lines l left join edges e on e.dst = l.n where e.src = o.id or e.src is null) from orders o;
select id, (select max(l.n) from lines l full join edges e on e.dst = l.n where e.src = o.id or l.order_id = o.id) from orders o;
select id, (select count(distinct n) + max(l.n + o.amount) from lines l where l.order_id = o.id) from orders o where id > 1;
select id from orders o where amount > (select avg(amount) from orders p where p.customer = o.customer);
select id from orders o where amount = (select max(amount) from orders p where p.customer is not distinct from o.customer);
select customer, sum(amount) from orders o group by customer having sum(amount) > (select max(p.amount) from orders p where p.customer = o.customer);
select customer, (select count(*) from orders p where p.customer < o.customer) from orders o group by customer;
select id from orders o where exists (select 1 from lines l where l.order_id = o.id group by l.n having count(*) > 1);
select id from orders o where exists (select count(*) from lines l where l.order_id = o.id);
select id from orders o where not exists (select 1 from lines l where l.order_id = o.id having max(n) > 2);
select id from orders o where exists (select 1 from lines l join edges e on e.src = o.id where l.order_id = o.id);
select id from orders o where exists (select n from lines l where l.order_id = o.id intersect select w from edges e where e.src = o.id);
select id from orders o where amount in (select max(n) from lines l where l.order_id = o.id);
select id from orders o where amount in (select n from lines l where l.order_id = o.id order by n limit 1);
select id from orders o where amount not in (select max(n) from lines l where l.order_id = o.id);
select id from orders o where exists (select 1 from lines l where l.order_id = o.id and l.n = (select min(e.w) from edges e where e.src = o.id or e.src = l.n));
select id, (select (select max(e.w) from edges e where e.src = o.id and e.dst > l.c) from (select count(*) as c from lines x where x.order_id = o.id) l) from orders o;
select orders.id from orders where orders.amount > (select avg(orders.amount) from orders where orders.id > 2);
select id from orders where exists (select 1 from lines where order_id = id and exists (select 1 from orders where id = n and customer = 'ada'));
select l.n from lines l where l.n in (select l.id from orders l where l.amount > 2);
select o.id from orders o where o.amount in (select o.n from lines o where o.order_id > 2);
select o.id, (select o.n from lines o order by o.n, price, day, fee, order_id limit 1) from orders o;
select o.id from orders o where exists (select 1 from (select * from lines o where o.n > 2) x where x.order_id = o.id);
select (select customer from orders order by id, customer, amount limit 1) from lines;
select (select 3), (select id from orders where false) from lines;
select id, (select w from edges where false) from orders;
-- NOT IN with nulls
select id from orders where id not in (select order_id from lines);
select id from orders where id not in (select order_id from lines where order_id is not null);
select id, id in (select order_id from lines), id not in (select n from lines where n > 3) from orders;
select src from edges where src not in (select order_id from lines);
select src, src in (select order_id from lines) from edges;
select id from orders where amount not in (select n from lines l where l.order_id = orders.id);
select id, amount in (select n from lines l where l.order_id = o.id), amount not in (select n from lines l where l.order_id = o.id and l.price > 1) from orders o;
select id from orders where id not in (select order_id from lines where false) or amount > 5;
select id from orders where not (id in (select order_id from lines) and amount > 3);
select id from orders where (id in (select order_id from lines)) is null;
select id from orders where id <> all (select order_id from lines where order_id > 2) and id = any (select src from edges);
select id, id = any (select src from edges), id <> all (select w from edges) from orders;
select id from orders where (id, amount) in (select order_id, n from lines);
select id from orders where (id, amount) not in (select order_id, n from lines);
select src from edges where (src, dst) not in (select dst, src from edges);
select id, (id, amount) in (select order_id, n from lines) from orders;
select id from orders o where amount not in (select count(*) from lines l where l.order_id = o.id);
-- BY NAME and combinations
select id, amount from orders union by name select amount, customer from orders;
select id, amount from orders union all by name select w as amount, src from edges;
select id from orders except (select src from edges intersect select n from lines);
(select id from orders except all select src from edges) union all (select id from orders intersect all select src from edges);
select id from orders intersect (select src from edges union select n from lines where n > 2) except select 3;
-- as-of joins
select o.id, o.amount, l.n from orders o asof join (select distinct order_id, n from lines) l on o.id = l.order_id and o.amount >= l.n;
select o.id, o.amount, l.n from orders o asof left join (select distinct order_id, n from lines) l on o.id = l.order_id and o.amount > l.n;
select o.id, o.amount, l.n from orders o asof join (select distinct order_id, n from lines) l on o.id = l.order_id and o.amount <= l.n;
select o.id, o.amount, l.n from orders o asof left join (select distinct order_id, n from lines) l on l.n > o.amount and o.id = l.order_id;
select o.id, o.amount, l.n from orders o asof join (select distinct n from lines) l on o.amount >= l.n;
select id, amount, o.customer from orders o asof left join (select distinct order_id as id, n as amount from lines) l using (id, amount);
select o.id, max(l.n) from orders o asof join (select distinct order_id, n from lines) l on o.id = l.order_id and o.amount >= l.n where o.amount > 2 group by o.id;
select id, (select max(n) + (select max(w) from edges) from lines l where l.order_id = o.id) from orders o;
select id, (select sum(count(*)) over () from lines l where l.order_id = o.id) from orders o;
select id, (select max(n + (select count(*) from edges e where e.src = l.n)) from lines l where l.order_id = o.id) from orders o;
select id, (select max(l.n) from lines l where l.order_id = o.id and l.n = o.amount and l.order_id = o.amount) from orders o;
select id, (select count(*) from lines l where l.price = o.id) from orders o;
select id, (select coalesce(max(n), -1) from lines l where o.id + 1 = l.order_id + l.n) from orders o;
with c(a, b) as (select id as x, amount as y from orders order by y, x limit 3) select a, b from c where a > 1;
select t.a from (select id as x, amount as y from orders order by y desc, x limit 3) t(a);
with c(a) as (select customer as k from orders group by customer having count(*) > 1 order by k limit 2) select * from c;
with c(a) as (select distinct on (k) customer as k from orders order by k, id) select * from c;
with c(a, b) as (select customer as k, rank() over (order by id) as r from orders qualify r < 3) select * from c;
with recursive c(a) as (select src as s from edges where src < 3 union select dst from edges join c on src = a) select * from c;
select id from orders o where amount in (select (select max(w) from edges e where e.src = l.n) from lines l where l.order_id = o.id);
select id from orders o where amount in (select rank() over (order by n) from lines l where l.order_id = o.id);
with c(a) as ((select id as x from orders order by x limit 2) union all (select src from edges order by src limit 1)) select a from c;

-- lists and UNNEST
select customer, list(id order by id), array_agg(amount order by amount desc, id), list(distinct amount order by amount) from orders group by customer;
select list(amount order by id, amount) filter (where amount > 2), list(id order by id) filter (where false) from orders;
select id, list(amount) over (partition by customer order by id, amount rows between 1 preceding and current row) from orders;
select id, unnest([id, amount]) from orders;
select id, unnest([id, amount]) + 1, unnest([1, 2, 3]) from orders where id > 2;
select o.id, u.x from orders o, unnest([o.id, o.amount, 3]) as u(x) where u.x > 2;
select o.id, u.x from orders o left join unnest(case when amount > 3 then [o.amount] end) as u(x) on true;
select o.id, u.x from orders o join unnest([o.id, o.amount]) as u(x) on u.x > o.id;
select x from unnest([3, 1, 2]) u(x);
select id, (select max(x) from unnest([o.id, o.amount]) u(x)) from orders o;
select id from orders where id in (select unnest([1, 2]));
select id from orders o where amount in (select unnest([n, 3]) from lines l where l.order_id = o.id);
select id from orders o where exists (select unnest(case when n > 2 then [n] end) from lines l where l.order_id = o.id);
select customer, unnest(list(id order by id)) from orders group by customer;
select x, count(*) from orders, unnest([id, amount]) u(x) group by x;
select distinct unnest([id, amount]) from orders;
select unnest(list(x order by x)) from (select unnest([id, amount]) as x from orders);
select max(xs) from (select customer, list(amount order by amount) as xs from orders where amount is not null group by customer);
with recursive r(n) as (select 1 union select unnest([n + 1, n + 2]) from r where n < 6) select * from r;

-- limits of row numbers
select id, amount from orders qualify row_number() over (partition by customer order by amount desc, id) <= 2;
select id, row_number() over (order by id, customer, amount) as r, rank() over (order by id, customer, amount) from orders qualify r < 4 and amount > 2;
select id from orders qualify 2 >= row_number() over (partition by customer order by id, amount);
select id from orders qualify row_number() over (partition by customer order by id, amount) = 2 or id = 3;
select id, rank() over (partition by customer order by id desc) as k from orders qualify row_number() over (partition by customer order by id, amount) = 1;
select * from (select *, row_number() over (partition by customer order by id, amount) as rn from orders) x where x.rn = 1 and x.amount > 1;
select * from (select *, row_number() over (partition by customer order by id, amount) as rn from orders) x left join lines l on l.order_id = x.id where 3 > rn;
select l.order_id, x.rn from lines l left join (select *, row_number() over (partition by customer order by id, amount) as rn from orders) x on l.order_id = x.id where rn <= 1;
with t as (select *, row_number() over (order by id, customer, amount) as rn from orders) select * from t where rn between 2 and 3 and rn <= 2;
with t as (select *, row_number() over (order by id, customer, amount) as rn from orders) select * from t where rn <= 2 union all select * from t where rn = 4;
with t as (select distinct id, row_number() over (order by id, customer, amount) as rn from orders) select id from t where rn <= 2;
select * from (select id, row_number() over (order by id, customer, amount) as rn from orders order by rn desc, id limit 3) where rn <= 2;
select id from orders qualify row_number() over (order by id, customer, amount) <= 0;
select customer, s from (select customer, sum(amount) as s, row_number() over (order by sum(amount) desc, customer) as rn from orders group by customer) where rn <= 2;
select id, (select max(rn) from (select row_number() over (order by n, price, day, fee) as rn from lines l where l.order_id = o.id) x where rn <= 2) from orders o;

-- columns of USING in subqueries and around them
select k from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k) where exists (select 1 from edges e where e.src = k);
select k, (select max(w) from edges e where e.src = k) from (select id as k, amount from orders) a right join (select order_id as k, n from lines) b using (k);
select k, x.m from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k), lateral (select max(w) as m from edges e where e.src = k) x;
select k from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k) where k in (select src from edges e where e.dst = k);
select max(k) from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k) having max(k) > 3;
select k, count(*) from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k) group by k having k > 1 order by k desc limit 2;
select k, rank() over (order by k) as r from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k) qualify r < 3 and k > 1;
select n from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k) order by k, n limit 3;
select k from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k) where exists (select 1 from edges f where f.dst in (select dst from edges e where e.src = k));
select k from (select id as k, amount from orders) a full join (select order_id as k, n from lines) b using (k) where exists (select 1 from lines l where exists (select 1 from edges e where e.src = k and e.dst = l.n));
select k, (select count(*) from lines l where l.n in (select dst from edges e where e.src = k)) from (select id as k, amount from orders) a right join (select order_id as k, n from lines) b using (k);
with c(c0, c1) as (select distinct on (o1) 0.50 as o0, (t2id is null) as o1 from (select dst as k, w as t1w from edges) t1 full join (select amount as k, id as t2id from orders) t2 using (k) right join (select src as k, dst as t3dst from edges) t3 using (k) order by o0 desc, o1 nulls first) select x.c0, x.c1 from c x where x.c1 >= x.c1;
select distinct on (o1) 0.50 as o0, (t2id is null) as o1 from (select dst as k, w as t1w from edges) t1 full join (select amount as k, id as t2id from orders) t2 using (k) right join (select src as k, dst as t3dst from edges) t3 using (k) order by o0 desc, o1 nulls first;
select distinct (t2id is null) as o1 from (select dst as k, w as t1w from edges) t1 full join (select amount as k, id as t2id from orders) t2 using (k) right join (select src as k, dst as t3dst from edges) t3 using (k);
select e.*, f.* from edges e join edges f using (src);
select f.*, e.w from edges e full join edges f using (dst);
-- SQLite: e.src is that of either side
select e.* from edges e right join edges f using (src, w);

-- subqueries in every clause
select id from orders where id in (select order_id from lines) is not true;
select count(*) filter (where id not in (select order_id from lines)) from orders;
select sum(case when id in (select order_id from lines) then 1 else 0 end), max((select max(n) from lines l where l.order_id = orders.id)) from orders;
select customer, sum(amount) filter (where exists (select 1 from lines l where l.order_id = orders.id)) from orders group by customer;
select rank() over (order by (select max(n) from lines l where l.order_id = orders.id)) from orders;
select id from orders qualify count(*) over (partition by customer) > (select min(n) from lines);
select id from orders order by (select max(n) from lines l where l.order_id = orders.id) nulls last, id, customer, amount limit 3;
select (select count(*) from lines l where l.order_id = o.id) as c, count(*) from orders o group by c;
select (select count(*) from lines l where l.order_id = o.id) as c, count(*) from orders o group by all;
select distinct on (customer) customer, (select count(*) from lines l where l.order_id = o.id) as c from orders o order by customer, c desc;
select customer, count(*) from orders group by rollup (customer) having (select count(*) from edges) > 1;
select case when grouping(customer) = 1 then 'all' else customer end as c, sum(amount) from orders group by rollup (customer);
select * from (select id, sum(amount) over (order by id, customer, amount) as s from orders) where s between 3 and 20;
select string_agg(customer, ',' order by customer) over (partition by id) from orders;
select sum(amount) over (partition by customer order by id desc nulls first, amount rows between unbounded preceding and current row) from orders;

-- numbers of outputs that are subqueries
select id, (select count(*) from lines l where l.order_id < o.id) from orders o order by 2 desc, 1;
select customer, (select max(n) from lines) from orders group by 1, 2;
select id from orders where amount <> all ((select n from lines) except (select w from edges));
select id from orders where (amount <> all ((select n from lines) union (select w from edges where src = id))) is not false;

-- clauses at other places: behind parentheses, of set operations, of joins in parentheses, of a WITH inside a step
select id from orders union select id from orders order by id;
select id from orders except (select n from lines order by n limit 2) order by id desc;
select id from orders intersect all select n from lines order by 1 limit 3;
with x as (select n from lines) select id from orders intersect select n from x order by id offset 1;
select id from orders where amount in ((select n from lines order by n desc) limit 1);
select id from orders where amount = any ((select n from lines order by n desc) limit 1);
select id from orders where (id, amount) in ((select n, order_id from lines order by 1, 2) limit 3);
select ((select max(n) from lines) limit 0) from orders;
select id from orders where amount > ((select min(n) from lines) limit 1);
(select id from orders order by id desc) limit 2;
(select id from orders order by amount) order by id offset 3;
select id from ((select id, amount from orders) order by amount, id, customer limit 3) x;
with x as ((select id from orders) order by id limit 2) select * from x;
select distinct(id) from orders order by id limit 2;
select distinct (id) as i, ((amount)) from orders order by i, amount offset 2;
select * from (values (1, 2), (3, 4)) as v(x);
select col1, x from (values (1, 2), (3, 4)) as v(x) where col1 > 2;
with v(x) as (values (1, 2)) select col1 + x from v;
select * rename (src as z) from edges;
select * exclude (src) replace (dst + 1 as dst) rename (w as z) from edges;
select o.* exclude (dst), e.* exclude (src) from edges o join edges e on o.src = e.src;
select id, (select count(*) from (select o.id from lines group by grouping sets ((o.id), ())) s) from orders o;
select id, (select sum(x) from (select o.id as x from lines group by rollup (o.id, n)) s) from orders o;
select id, (select count(x) from (select o.amount as x, count(*) as c from lines group by cube (o.amount)) s where c > 1) from orders o;
select o.id, l.n from orders o left join (lines l join edges e on e.src = l.n) on o.id = l.order_id;
select * from orders o, (lines l join edges e on e.src = l.n) where o.id = l.order_id and e.dst > 2;
select o.id, l.n, e.w from orders o join lines l join edges e on e.src = l.n on o.id = l.order_id;
select o.id, l.n, e.w from orders o right join (lines l left join edges e on e.src = l.n) on o.id = l.order_id;
select o.id, l.n, e.w from orders o full join (lines l full join edges e on e.src = l.n) on o.id = l.order_id;
select x.n, x.dst from orders o left join (lines l join edges e on e.src = l.n) as x on o.id = x.order_id;
select * from (((select n from lines) l join edges e on e.src = l.n) join orders o on o.id = l.n);
select o.id, n, u.x from orders o left join (lines l cross join unnest([1, 2]) u(x)) on o.id = l.order_id;
select id, (select max(e.w) from (lines l join edges e on e.src = l.n) where l.order_id = o.id) from orders o;
select l.n from lines l where exists (select 1 from (lines m join edges l on m.n = l.src) where m.order_id = l.w);
select l.n from lines l where exists (select 1 from (lines m join edges e on m.n = e.src) where m.order_id = l.order_id);
select id from orders o where exists ((select n from lines where order_id = o.id) union (select dst from edges where src = o.id));
select count(*) from orders o semi join (lines l join edges e on e.src = l.n) on o.id = l.order_id;
with recursive r as (select src from edges union (with x as (select src from r) select src from x)) select * from r;
with recursive r as (select src from edges union (with x as (select src from r) select dst from x join edges on x.src = edges.src)) select * from r;
with recursive r(a) as (select src from edges union (with recursive s(b) as (select a from r union select dst from s join edges on src = b) select b + 1 from s where b < 5)) select * from r;
with recursive r(a) as (select src from edges union all (with recursive s(b) as (select a + 1 from r where a < 3 union all select b + 1 from s where b < 4) select b from s)) select * from r;
with recursive r(a, n) as (select src, 0 from edges union (with recursive s(b, m) as (select a, n + 1 from r where n < 2 union select dst, m from s join edges on src = b) select b, m from s)) select * from r;
with recursive r(a) as (select src from edges union (with recursive s(b) as (select a from r union (with recursive t(c) as (select b from s union select dst from t join edges on src = c) select c from t)) select b from s)) select * from r;
select * exclude (src) from edges o join edges e on o.src = e.src join edges f on f.src = o.dst;
-- SQLite: it joins what stands before the comma too
select o.id, e.src, l.n from orders o, edges e right join lines l on e.src = l.n;
-- SQLite: it joins what stands before the comma too
select o.id, e.src, l.n from orders o, (select * from edges) e full join lines l on e.src = l.n, edges g where g.src = o.id;
-- SQLite: it joins what stands before the comma too
select o.id, e.src, l.n, g.w from orders o left join edges g on g.src = o.id, edges e cross join edges f right join lines l on e.src = l.n and f.dst = l.n;
-- SQLite: it joins what stands before the comma too
select o.id, (select count(*) from edges e, edges g full join lines l on g.src = l.n where e.src = o.id) from orders o;

-- digits of decimals, units, literals
-- SQLite: it has no decimals
select sum(fee), min(fee), max(fee * fee), sum(fee * 0.125), avg(fee + 1), sum(fee)::varchar from lines group by n;
-- SQLite: it has no decimals
select fee::varchar from lines union select sum(fee * 1.5)::varchar from lines;
-- SQLite: it has no decimals
select n, round(sum(fee * fee), 1)::varchar, list_max(list(fee order by fee))::varchar from lines group by n having sum(fee) > 0.05;
-- SQLite: it has no decimals
select order_id, (sum(fee) over (partition by order_id order by n, day, fee, price))::varchar from lines;
select id, amount * 1e1-1, 1e2-amount from orders where amount > 1e0+1;
-- SQLite: it has no date_trunc
select date_trunc(if(n > 2, 'month', 'week'), day), count(*) from lines group by 1;
-- SQLite: it has no zones
select cast(day as timestamp) at time zone 'europe/berlin', date_diff('hour', timestamp '2024-03-30 23:30:00', day) from lines;
-- SQLite: dates are texts
select id from orders where customer like '%a%_' or date '2024-01-31'::varchar like customer || '%';

-- rows, quantified comparisons, and series in FROM
-- SQLite: rows with NULL are unknown
select id, (id, amount) < (3, 4), (customer, id) = ('ada', id), row(id, amount) from orders where (amount, id) in ((3, 2), (id, 4), (NULL, 1));
select (id % 2, customer), count(*), max((amount, id)) from orders group by 1;
select id, amount >= all (select n from lines where order_id = id), amount < any (select w from edges), id = all (select src from edges where dst = amount) from orders;
select id from orders where amount > all (select n from lines where n is not null) or id <> any (select dst from edges);
select customer, count(*) from orders group by customer having count(*) <= all (select id from orders) and max(amount) >= any (select n from lines);
select id, (amount, id) >= all (select n, order_id from lines), (true <> any (select w > 2 from edges)) <> any (select n > 2 from lines) from orders;
select id, rank() over (order by id) > any (select src from edges) from orders qualify rank() over (order by id) <> all (select dst from edges where w > 2) or count(*) over () < any (select w from edges);
select o.id from orders o where o.amount <= any ((select n from lines) union (select o.id)) and customer = any (['ada', o.customer || '']);
select o.id, i from orders o, range(o.amount % 4) r(i) where i > 0;
select id, g.generate_series, ordinality from orders, generate_series(id, id + 3, 2) with ordinality g where amount is not null;
select x, count(o.id) from generate_series(0, 9) s(x) left join orders o on o.amount = x group by x;
select * from (select count(*) as n, sum(amount) as s from orders) a, (select max(n) as m from lines) b limit 100;
-- SQLite: its VALUES name their columns otherwise
with v as (values (1, 'ada'), (3, 'bob'), (NULL, NULL)) select v.*, o.amount from v join orders o on v.col0 = o.id or v.col1 = o.customer;
values (1, 2.5), (NULL, 3) union all select id, amount from orders;
select o.id, e.dst from orders o join edges e on o.id = e.src and exists (select 1 from lines l where l.order_id = o.id and l.n < e.dst);
select o.id, e.dst from orders o join edges e on o.id >= e.src and o.amount > all (select n from lines where order_id = e.dst);

-- cycles of one table with itself
select a.src, b.src, c.src from edges a join edges b on a.dst = b.src join edges c on b.dst = c.src and c.dst = a.src;
select count(*), sum(a.w) from edges a join edges b on a.dst = b.src join edges c on b.dst = c.src join edges d on c.dst = d.src and d.dst = a.src where a.w <= c.w;
select a.id, b.id, c.id from orders a, orders b, orders c where a.customer = b.customer and b.customer = c.customer and a.customer = c.customer and a.amount = c.amount and a.id < b.id;
select a.w, b.dst from edges a join edges b on a.w + 1 = b.w and a.src = b.src and a.dst = b.dst join edges c on c.w is not distinct from a.w and c.dst = b.dst;
