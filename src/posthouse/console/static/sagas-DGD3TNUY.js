import{a,b,c,d,e}from"./chunk-JU5SZ4C5.js";import"./chunk-6TNAKNS3.js";export{e as Rows,a as STATUS,c as State,d as default,b as to};
