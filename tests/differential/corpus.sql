-- Queries that test_sql.py compares with DuckDB at every epoch. One query ends with a semicolon.
-- orders(id, customer, amount), lines(order_id, price, n, day, fee), edges(src not null, dst not null, w)

-- projection and scalar expressions
select * from orders;
select id, customer from orders;
select amount + 1, amount - 2, amount * 3, -amount from orders;
select amount / 2, amount // 2, amount % 3, (amount - 5) // 2, (amount - 5) % 3 from orders;
select price * n, price + 1, price / 4, price - n, price * 1.5 from lines;
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
select cast(amount as varchar), cast(price as bigint), cast(fee as integer), cast(fee as double), amount::decimal(6, 1) from orders, lines where id = order_id;
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
select id from orders where id = '3';
select day from lines where day in ('2024-01-05', '2024-02-01');
select count(*) from orders, lines;
select count(distinct customer), sum(amount) from orders group by amount % 2 having count(distinct customer) > 1;
select min(distinct amount), avg(distinct amount) from orders;
